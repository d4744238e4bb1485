"""Which metrics a table holds, where their rows come from, and how averages are formed."""

from __future__ import annotations

from dataclasses import dataclass

from lopd_repro.errors import UserError


@dataclass(frozen=True)
class Metric:
    """One column group. `benchmark` is the folder under `eval/`; `category` selects its rows.

    An average has `parts` instead: `weights` are task counts (the paper's rule), or None for the
    plain mean.
    """

    name: str
    title: str
    benchmark: str = ""
    category: str | None = None
    parts: tuple[str, ...] = ()
    weights: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Layout:
    """One table: its training domain and its metrics in order.

    `binomial` tables have Wilson intervals where there is one seed and one yes-or-no score a task;
    other intervals come from the bootstrap.
    """

    name: str
    title: str
    domain: str
    metrics: tuple[Metric, ...]
    binomial: bool = False


@dataclass(frozen=True)
class ReleasedRow:
    """A checkpoint that others trained: its row's backbone, name of its files, printed label, and
    the paper's method whose numbers stand beside (empty: none)."""

    backbone: str
    name: str
    label: str
    paper_method: str = ""


@dataclass(frozen=True)
class TableSettings:
    """What a table covers. `paper_backbones` and `labels` map names of ours to the paper's.
    `released` checkpoints were asked once, with the draws of the first seed."""

    scale: str
    backbones: tuple[str, ...]
    methods: tuple[str, ...]
    labels: dict[str, str]
    paper_backbones: dict[str, str]
    seeds: tuple[int, ...]
    bootstrap_seed: int = 0
    released: tuple[ReleasedRow, ...] = ()


_BFCL = ("base", "miss_func", "miss_param", "long_context")

TABLE1 = Layout(
    "table1",
    "Table 1: tool use",
    "tool_use",
    (
        Metric("envscaler", "EnvScaler", "envscaler"),
        *(Metric(f"bfcl_{c}", f"BFCL {c}", "bfcl", f"multi_turn_{c}") for c in _BFCL),
        Metric("bfcl_avg", "BFCL avg", parts=tuple(f"bfcl_{c}" for c in _BFCL)),
        Metric("ace_multi_step", "ACE multi-step", "acebench", "multi_step"),
        Metric("ace_multi_turn", "ACE multi-turn", "acebench", "multi_turn"),
        Metric(
            "ace_avg", "ACE avg", parts=("ace_multi_step", "ace_multi_turn"), weights=(20.0, 30.0)
        ),
    ),
)

TABLE2 = Layout(
    "table2",
    "Table 2: code",
    "coding",
    (
        Metric("lcb_v5", "LCB v5", "livecodebench", "v5"),
        Metric("lcb_v6", "LCB v6", "livecodebench", "v6"),
        Metric("lcb_avg", "LCB avg", parts=("lcb_v5", "lcb_v6"), weights=(279.0, 131.0)),
        Metric("humaneval_plus", "HumanEval+", "evalplus", "humaneval_plus"),
        Metric("mbpp_plus", "MBPP+", "evalplus", "mbpp_plus"),
        Metric(
            "evalplus_avg",
            "EvalPlus avg",
            parts=("humaneval_plus", "mbpp_plus"),
            weights=(164.0, 378.0),
        ),
    ),
)

HUMANEVAL = Layout(
    "humaneval",
    "HumanEval with its base tests (not HumanEval+)",
    "coding",
    (Metric("humaneval_base", "HumanEval (base tests)", "evalplus", "humaneval_base"),),
    binomial=True,
)

LAYOUTS = {layout.name: layout for layout in (TABLE1, TABLE2)}
"""The paper's tables of scores."""

EVERY_LAYOUT = {**LAYOUTS, HUMANEVAL.name: HUMANEVAL}


def layout(name: str) -> Layout:
    """A table's layout by name."""
    if name not in EVERY_LAYOUT:
        raise UserError(f"table: found {name!r}, allowed: {', '.join(EVERY_LAYOUT)}")
    return EVERY_LAYOUT[name]
