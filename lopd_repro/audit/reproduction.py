"""The second verdict: do reproduced results bear a claim out?

For an equation the test is two one-sided tests (Schuirmann 1987): the claim is reproduced when
the 90% interval of (reproduced left side - stated right side) lies within +-margin, and not
reproduced when that interval lies wholly outside. For an inequality it is reproduced when the 90%
interval of the difference lies on the claimed side of 0, and not reproduced when the interval
stays below +margin, so that any lead is smaller than the margin. Everything else is 'not tested',
with the reason. Margins are stated per metric in protocol.yaml. Runs at a scale that is not among
the paper's `evidence_scales` test nothing about it: what they would say stands in the detail.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from lopd_repro.audit.claims import Judged, Part
from lopd_repro.audit.expression import Value, evaluate
from lopd_repro.audit.paper import Cell, Paper
from lopd_repro.errors import UserError

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
NOT_TESTED = "not tested"
Z90 = 1.6448536269514722
Z95 = 1.959963984540054


@dataclass(frozen=True)
class Result:
    """One reproduced cell: mean over seeds, standard error, scale of the run."""

    mean: float
    error: float | None
    scale: str


@dataclass(frozen=True)
class SecondVerdict:
    """What reproduced results say about one claim."""

    verdict: str
    scale: str
    margin: str
    detail: str


Results = Mapping[tuple[str, ...], Result]


def read_results(
    results_dir: Path | None, paper: Paper, backbones: Mapping[str, str] | None = None
) -> dict[tuple[str, ...], Result]:
    """Reproduced cells by (table, backbone, method, metric), from `table1.csv` and so on.

    `backbones` gives the paper's name for a backbone of the results; others keep their name.
    Files that do not exist yet are passed over; an unreadable number is a `UserError`. table3 has
    one row per metric and one column per method, the others one row per backbone and method.
    """
    found: dict[tuple[str, ...], Result] = {}
    if results_dir is None:
        return found
    for table in paper.score_tables():
        path = results_dir / f"{table.name}.csv"
        if not path.is_file():
            continue
        with path.open(newline="", encoding="utf-8") as handle:
            rows = list(csv.DictReader(handle))
        for number, row in enumerate(rows, start=2):
            if "metric" in row:
                backbone = row.get("backbone") or table.backbones()[0]
                backbone = (backbones or {}).get(backbone, backbone)
                keys = [(backbone, name, row["metric"], name) for name in table.methods()]
            else:
                backbone, method = row.get("backbone", ""), row.get("method", "")
                backbone = (backbones or {}).get(backbone, backbone)
                keys = [(backbone, method, name, name) for name in table.metrics()]
            for backbone, method, metric, column in keys:
                result = _result(path, number, row, column)
                if result is not None:
                    found[(table.name, backbone, method, metric)] = result
    return found


def _result(path: Path, number: int, row: Mapping[str, str | None], column: str) -> Result | None:
    def read(name: str) -> float | None:
        text = row.get(name)
        if text is None or not text.strip():
            return None
        try:
            value = float(text)
        except ValueError:
            raise UserError(f"{path}, row {number}, column {name}: {text!r} is no number") from None
        return value if math.isfinite(value) else None

    mean = read(column)
    if mean is None:
        return None
    std, low, high = read(f"{column}_std"), read(f"{column}_ci_low"), read(f"{column}_ci_high")
    seeds = read("n_seeds")
    errors = []
    if low is not None and high is not None:
        errors.append((high - low) / (2 * Z95))
    if std is not None and seeds is not None and seeds > 1:
        errors.append(std / math.sqrt(seeds))
    return Result(mean, max(errors) if errors else None, str(row.get("scale") or "unknown"))


def second_verdict(paper: Paper, judged: Judged, results: Results) -> SecondVerdict:
    """Test every part of a claim that reproduced cells allow to be tested."""
    parts = [part for part in judged.parts if part.expression]
    if not results:
        return SecondVerdict(NOT_TESTED, "", "", "no reproduced results")
    if not parts:
        return SecondVerdict(NOT_TESTED, "", "", "the claim is not one about reproducible cells")
    outcomes = [_test_part(paper, part, results, judged) for part in parts]
    scales = ", ".join(sorted({o.scale for o in outcomes if o.scale}))
    margins = ", ".join(dict.fromkeys(o.margin for o in outcomes if o.margin))
    verdicts = [o.verdict for o in outcomes]
    if NOT_REPRODUCED in verdicts:
        verdict = NOT_REPRODUCED
    elif all(v == REPRODUCED for v in verdicts):
        verdict = REPRODUCED
    else:
        verdict = NOT_TESTED
    tally = (
        f"{verdicts.count(REPRODUCED)} of {len(parts)} parts reproduced, "
        f"{verdicts.count(NOT_REPRODUCED)} not, {verdicts.count(NOT_TESTED)} not tested"
    )
    shown = [o.detail for o in outcomes if o.verdict == verdict]
    detail = f"{tally}: " + "; ".join(dict.fromkeys(shown))
    other = sorted(set(scales.split(", ")) - set(paper.evidence_scales) - {""})
    if other:
        detail = (
            f"runs at scale {', '.join(other)} are no evidence about the paper; at that scale the "
            f"test gives '{verdict}' ({detail})"
        )
        verdict = NOT_TESTED
    return SecondVerdict(verdict, scales, margins, detail)


def _test_part(paper: Paper, part: Part, results: Results, judged: Judged) -> SecondVerdict:
    cells = [paper.cells[ref] for ref in part.cells]
    missing = [cell.ref for cell in cells if (cell.file, *cell.key) not in results]
    if missing or not cells:
        return SecondVerdict(
            NOT_TESTED, "", "", f"no result for {missing[0]}" if missing else "no cells"
        )
    found = {cell.ref: results[(cell.file, *cell.key)] for cell in cells}
    scales = sorted({result.scale for result in found.values()})
    scale = ", ".join(scales)
    if len(scales) > 1:
        return SecondVerdict(NOT_TESTED, scale, "", f"results of several scales: {scale}")
    without = [ref for ref, result in found.items() if result.error is None]
    if without:
        return SecondVerdict(
            NOT_TESTED, scale, "", f"{without[0]} has no interval and no deviation"
        )
    body, _, within = part.expression.partition(" within ")
    left_text, relation, right_text = re.split(r"(>=|<=|=|>|<|~)", body)
    difference, error, unit = _difference(paper, left_text, right_text, found)
    margin = _margin(paper, cells, judged, unit, within)
    if margin is None:
        return SecondVerdict(NOT_TESTED, scale, "", "no margin is stated in this unit")
    sign = -1.0 if relation in ("<", "<=") else 1.0
    low, high = sign * difference - Z90 * error, sign * difference + Z90 * error
    if relation in ("=", "~"):
        verdict = (
            REPRODUCED
            if -margin < low and high < margin
            else NOT_REPRODUCED
            if low > margin or high < -margin
            else NOT_TESTED
        )
        asked = "off the stated value by"
    else:
        verdict = REPRODUCED if low > 0 else NOT_REPRODUCED if high < margin else NOT_TESTED
        asked = "ahead by"
    detail = f"{part.expression}: {asked} {sign * difference:.2f}, 90% [{low:.2f}, {high:.2f}]"
    if verdict == NOT_TESTED:
        detail += f", too wide to decide with margin {margin:g}"
    return SecondVerdict(verdict, scale, f"{margin:g}", detail)


def _difference(
    paper: Paper, left: str, right: str, found: Mapping[str, Result]
) -> tuple[float, float, bool]:
    """Left - right from reproduced means, its standard error to first order (cells independent),
    and whether every cell enters with weight 1 or -1, so that the metric's own margin applies."""

    def total(shifted: str = "", by: float = 0.0) -> float:
        def value(cell: Cell) -> Value:
            number = Fraction(found[cell.ref].mean + (by if cell.ref == shifted else 0.0))
            return Value(number, number, number)

        a, _, _ = evaluate(paper, left, value)
        b, _, _ = evaluate(paper, right, value)
        return float(a.face - b.face)

    variance, unit = 0.0, True
    for ref, result in found.items():
        step = max(1e-6, abs(result.mean) * 1e-6)
        slope = (total(ref, step) - total(ref, -step)) / (2 * step)
        variance += (slope * (result.error or 0.0)) ** 2
        unit = unit and abs(abs(slope) - 1) < 1e-6
    return total(), math.sqrt(variance), unit


def _margin(
    paper: Paper, cells: list[Cell], judged: Judged, unit: bool, within: str
) -> float | None:
    stated = judged.claim.fields.get("margin")
    if stated is not None:
        return float(stated)
    if within:
        return float(within)
    margins = [paper.metrics[cell.key[2]].margin for cell in cells]
    known = [margin for margin in margins if margin is not None]
    return max(known) if unit and len(known) == len(margins) else None
