"""False alarms and detection of the audit, on simulated papers.

    python benchmarks/audit_simulation.py --tables 1000 --errors 300 --seed 0

Honest papers: counts are drawn, shared by R runs (R from 1 to 5), turned into percentages with one
or two decimals, rounded half-up, half-even or cut off (one way in a paper), sometimes as means of
runs that were rounded first; averages are formed from exact or from printed parts with either
weighting; a second table holds a ratio column; a figure repeats cells; the claims are true of the
printed or of the exact numbers. A false alarm is any finding of severity 'contradiction'.

Errors: one error of one kind is put into an honest paper. Whether it is detectable at all is
decided here by brute force, without the audit's code: it is not where some honest table (other
number of runs up to 10, other rounding, other way of averaging) prints the same digits. The rate
counts the detectable ones that the audit reports on the cell or claim concerned. Two lines more
are for comparison: the same slip and the same cut-off judged by one who knows the number of runs,
which the audit has to infer from the digits.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from lopd_repro.audit.core import Audit, audit_paper
from lopd_repro.audit.findings import Severity
from lopd_repro.audit.paper import Cell, Claim, Metric, Paper, Table, make_paper
from lopd_repro.audit.printed import parse_printed

METHODS = ("Base", "A", "B", "C", "D", "Ours")
BACKBONES = ("Small", "Large")
SIZES = (20, 30, 50, 64, 100, 131, 164, 200, 279, 378, 500, 541)
MODES = ("half-up", "half-even", "truncated")
SEEN = (Severity.CONTRADICTION, Severity.DISCREPANCY)


def write(value: Fraction, decimals: int, mode: str) -> str:
    """Print a number: an implementation apart from the audit's own."""
    scaled = value * 10**decimals
    floor, rest = math.floor(scaled), scaled - math.floor(scaled)
    half = Fraction(1, 2)
    up = (mode == "half-up" and rest >= half) or (
        mode == "half-even" and (rest > half or (rest == half and floor % 2 == 1))
    )
    units = floor + up
    if decimals == 0:
        return str(units)
    return f"{units // 10**decimals}.{units % 10**decimals:0{decimals}d}"


@dataclass
class Simulated:
    """A paper with the truth behind it."""

    paper: Paper
    items: dict[str, int]
    runs: int
    decimals: int
    mode: str
    runs_rounded: bool
    weights: str
    shares: dict[tuple[str, str, str], Fraction]
    texts: dict[tuple[str, str, str], str]

    @property
    def parts(self) -> list[str]:
        """Names of the share columns."""
        return list(self.items)


def draw(rng: np.random.Generator, *, plain: bool = False) -> Simulated:
    """One honest paper. `plain` fixes half-up rounding of exact means, for injected cut-offs."""
    parts = [f"set{i}" for i in range(int(rng.integers(2, 5)))]
    items = {name: int(rng.choice(SIZES)) for name in parts}
    runs = int(rng.choice([1, 1, 1, 2, 3, 4, 5]))
    decimals = int(rng.integers(1, 3))
    mode = "half-up" if plain else str(rng.choice(MODES, p=[0.6, 0.2, 0.2]))
    runs_rounded = (not plain) and runs > 1 and rng.random() < 0.2
    weights = str(rng.choice(["items", "equal"]))
    source = str(rng.choice(["exact", "printed"]))
    shares: dict[tuple[str, str, str], Fraction] = {}
    texts: dict[tuple[str, str, str], str] = {}
    level = {(b, m): rng.uniform(0.15, 0.85) for b in BACKBONES for m in METHODS}
    for b in BACKBONES:
        for m in METHODS:
            for name in parts:
                n = items[name]
                p = float(np.clip(level[b, m] + rng.normal(0, 0.08), 0.02, 0.98))
                counts = [int(rng.binomial(n, p)) for _ in range(runs)]
                shares[b, m, name] = Fraction(sum(counts), n * runs)
                value = 100 * shares[b, m, name]
                if runs_rounded:
                    each = [Fraction(write(Fraction(100 * k, n), decimals, mode)) for k in counts]
                    value = sum(each, Fraction(0)) / runs
                texts[b, m, name] = write(value, decimals, mode)
            w = weighting(items, weights)
            use = (
                {name: 100 * shares[b, m, name] for name in parts}
                if source == "exact"
                else {name: Fraction(texts[b, m, name]) for name in parts}
            )
            shares[b, m, "avg"] = sum((w[k] * shares[b, m, k] for k in parts), Fraction(0))
            texts[b, m, "avg"] = write(
                sum((w[k] * use[k] for k in parts), Fraction(0)), decimals, mode
            )
    metrics = {
        name: Metric(
            name,
            name,
            "proportion",
            items=items[name],
            repeats=runs if rng.random() < 0.2 else None,
        )
        for name in parts
    }
    stated = weights if rng.random() < 0.5 else "unstated"
    metrics["avg"] = Metric("avg", "avg", "average", parts=tuple(parts), weights=stated)
    for name in ("gain", "steps", "rate"):
        metrics[name] = Metric(name, name, "quantity")
    cells = [
        Cell("main", row, key, parse_printed(text), "table")
        for row, (key, text) in enumerate(texts.items(), start=2)
    ]
    ratio_cells = []
    for m in METHODS:
        gain, steps = float(rng.uniform(0.2, 0.9)), float(rng.uniform(2, 30))
        for name, value, places in (
            ("gain", gain, 3),
            ("steps", steps, 2),
            ("rate", gain / steps, 4),
        ):
            text = write(Fraction(value), places, mode)
            ratio_cells.append(
                Cell(
                    "ratios", len(ratio_cells) + 2, ("Small", m, name), parse_printed(text), "table"
                )
            )
    points = [
        Cell(
            "curve",
            i + 2,
            (m, "end"),
            parse_printed(write(Fraction(texts["Small", m, "avg"]) / 100, decimals + 2, "half-up")),
            "figure labels",
        )
        for i, m in enumerate(METHODS)
    ]
    same = tuple(
        {"title": m, "check": f"curve[{m},end] * 100 = main[Small,{m},avg]"} for m in METHODS
    )
    sim = Simulated(
        make_paper(
            title="simulated",
            note="",
            tables={
                "main": Table("main", "scores", "main", tuple(cells)),
                "ratios": Table("ratios", "scores", "ratios", tuple(ratio_cells)),
                "curve": Table("curve", "points", "curve", tuple(points)),
            },
            metrics=metrics,
            claims=(),
            same_quantity=same,
            ratios=({"table": "ratios", "formula": "rate = gain / steps"},),
        ),
        items,
        runs,
        decimals,
        mode,
        runs_rounded,
        weights,
        shares,
        texts,
    )
    return with_claims(sim, rng)


def weighting(items: dict[str, int], weights: str) -> dict[str, Fraction]:
    """Weights that sum to 1."""
    if weights == "equal":
        return {name: Fraction(1, len(items)) for name in items}
    return {name: Fraction(n, sum(items.values())) for name, n in items.items()}


def with_claims(sim: Simulated, rng: np.random.Generator) -> Simulated:
    """Claims that are true, of the printed numbers or of the exact ones."""
    claims = []
    truth = {
        "printed": {key: Fraction(text) for key, text in sim.texts.items()},
        "exact": {key: 100 * share for key, share in sim.shares.items()},
    }
    for i in range(6):
        known = truth[str(rng.choice(["printed", "exact"]))]
        b, metric = str(rng.choice(BACKBONES)), str(rng.choice([*sim.parts, "avg"]))
        ranked = sorted(METHODS, key=lambda m: known[b, m, metric])
        x, y = ranked[-1], ranked[int(rng.integers(0, len(ranked) - 1))]
        gap = known[b, x, metric] - known[b, y, metric]
        checks = [
            f"main[{b},{x},{metric}] = {sim.texts[b, x, metric]}",
            f"main[{b},{x},{metric}] - main[{b},{y},{metric}] = "
            f"{write(gap, sim.decimals, 'half-up')}",
        ]
        if gap > 0:
            checks.append(f"main[{b},{x},{metric}] > main[{b},{y},{metric}]")
        claims.append(Claim(f"D{i}", "text", "difference", "a difference", {"checks": checks}))
        if known[b, x, metric] > known[b, ranked[-2], metric]:
            fields = {"method": x, "columns": {"main": [metric]}, "backbones": [b]}
            claims.append(Claim(f"B{i}", "text", "best", "the best", fields))
    return replace(sim, paper=replace(sim.paper, claims=tuple(claims)))


def change_cell(paper: Paper, ref: str, text: str) -> Paper:
    """The paper with one cell printed as `text`."""
    tables = {
        name: replace(
            table,
            cells=tuple(
                replace(c, printed=parse_printed(text)) if c.ref == ref else c for c in table.cells
            ),
        )
        for name, table in paper.tables.items()
    }
    fields = {k: v for k, v in paper.__dict__.items() if k not in ("tables", "cells")}
    return make_paper(**fields, tables=tables)


def slip(rng: np.random.Generator, text: str) -> str:
    """Replace one of the last two digits by another."""
    digits = [i for i, c in enumerate(text) if c.isdigit()][-2:]
    place = int(rng.choice(digits))
    new = str(rng.choice([d for d in "0123456789" if d != text[place]]))
    return text[:place] + new + text[place + 1 :]


def printable(text: str, n: int, decimals: int, modes: tuple[str, ...]) -> bool:
    """Whether some k/n prints `text` under one of the modes."""
    guess = Fraction(text) * n / 100
    for k in range(max(0, math.floor(guess) - 3), min(n, math.ceil(guess) + 3) + 1):
        if any(write(Fraction(100 * k, n), decimals, mode) == text for mode in modes):
            return True
    return False


def near(text: str, n: int, runs: int, decimals: int) -> bool:
    """Whether rounding each run first could have shifted some k/(R*n) to `text`."""
    if runs == 1 or (100 * 10**decimals) % n == 0:
        return False
    total, unit = n * runs, Fraction(1, 10**decimals)
    lowest, highest = Fraction(text) - unit, Fraction(text) + 2 * unit
    return math.ceil(lowest * total / 100) <= highest * total / 100


def honest_column(
    texts: list[str],
    n: int,
    decimals: int,
    modes: tuple[str, ...] = MODES,
    rounded_runs: int = 1,
) -> bool:
    """Whether some number of runs up to 10 prints the whole column; at the true number also
    with runs that were rounded first, where `rounded_runs` gives it."""
    return any(
        all(
            printable(t, n * r, decimals, modes) or (r == rounded_runs and near(t, n, r, decimals))
            for t in texts
        )
        for r in range(1, 11)
    )


def column(sim: Simulated, name: str, changed: dict[tuple[str, str, str], str]) -> list[str]:
    """The printed column with changes put in."""
    return [changed.get((b, m, name), sim.texts[b, m, name]) for b in BACKBONES for m in METHODS]


def honest_average(sim: Simulated, b: str, m: str, text: str, weights: tuple[str, ...]) -> bool:
    """Whether some way of averaging the parts prints `text`, rounded runs included."""
    slack = Fraction(1, 10**sim.decimals) if sim.runs > 1 else Fraction(0)
    for name in weights:
        w = weighting(sim.items, name)
        exact = sum((100 * w[k] * sim.shares[b, m, k] for k in sim.items), Fraction(0))
        faces = sum((w[k] * Fraction(sim.texts[b, m, k]) for k in sim.items), Fraction(0))
        unit = Fraction(1, 10**sim.decimals)
        # parts whose count is not unique allow a little more
        spread = sum(
            (
                w[k] * unit
                for k in sim.items
                if 100 * 10**sim.decimals < 2 * sim.items[k] * sim.runs
            ),
            Fraction(0),
        )
        for value in (exact, faces):
            for mode in MODES:
                if write(value, sim.decimals, mode) == text:
                    return True
        loose = unit * bool(spread or slack) + slack + spread
        if -loose <= exact - Fraction(text) <= loose + slack:
            return True
    return False


def slip_in(
    sim: Simulated, rng: np.random.Generator, known_runs: bool
) -> tuple[Paper, Callable[[Audit], bool]] | None:
    """A slip of the pen in a share, kept if no honest table (of that number of runs) prints it."""
    name = str(rng.choice(sim.parts))
    b, m = str(rng.choice(BACKBONES)), str(rng.choice(METHODS))
    text, n = slip(rng, sim.texts[b, m, name]), sim.items[name]
    if Fraction(text) > 100:
        return None
    if known_runs:
        honest = printable(text, n * sim.runs, sim.decimals, MODES) or near(
            text, n, sim.runs, sim.decimals
        )
    else:
        texts = column(sim, name, {(b, m, name): text})
        honest = honest_column(texts, n, sim.decimals, rounded_runs=sim.runs)
    if honest:
        return None
    ref = f"main[{b},{m},{name}]"
    return change_cell(sim.paper, ref, text), lambda a: reported(a, ref, ("granularity",))


def cut_off(
    sim: Simulated, rng: np.random.Generator, known_runs: bool
) -> tuple[Paper, Callable[[Audit], bool]] | None:
    """A cell cut off, kept if rounding alone (at that number of runs) does not print it."""
    name = str(rng.choice(sim.parts))
    b, m = str(rng.choice(BACKBONES)), str(rng.choice(METHODS))
    text, n = write(100 * sim.shares[b, m, name], sim.decimals, "truncated"), sim.items[name]
    rounding = ("half-up", "half-even")
    if known_runs:
        honest = printable(text, n * sim.runs, sim.decimals, rounding)
    else:
        texts = column(sim, name, {(b, m, name): text})
        honest = honest_column(texts, n, sim.decimals, rounding)
    if honest:
        return None
    ref = f"main[{b},{m},{name}]"

    def found(audit: Audit) -> bool:
        return any(f.check == "rounding" and ref in f.cells for _, f in audit.findings)

    return change_cell(sim.paper, ref, text), found


Injected = tuple[Paper, Callable[[Audit], bool]]


def reported(audit: Audit, ref: str, checks: tuple[str, ...]) -> bool:
    """Whether a contradiction or discrepancy of these checks names the cell."""
    return any(
        f.check in checks and f.severity in SEEN and ref in f.cells for _, f in audit.findings
    )


def inject_cell(sim: Simulated, rng: np.random.Generator) -> Injected | None:
    """A slip of the pen in a share: no count prints it."""
    return slip_in(sim, rng, False)


def inject_average(sim: Simulated, rng: np.random.Generator) -> Injected | None:
    """A slip of the pen in an average."""
    b, m = str(rng.choice(BACKBONES)), str(rng.choice(METHODS))
    text = slip(rng, sim.texts[b, m, "avg"])
    if Fraction(text) > 100 or honest_average(sim, b, m, text, ("items", "equal")):
        return None
    ref = f"main[{b},{m},avg]"
    return change_cell(sim.paper, ref, text), lambda a: reported(a, ref, ("averages",))


def inject_cut(sim: Simulated, rng: np.random.Generator) -> Injected | None:
    """One cell cut off in a table that is rounded otherwise."""
    return cut_off(sim, rng, False)


def inject_weights(sim: Simulated, rng: np.random.Generator) -> Injected | None:
    """Averages weighted otherwise than stated."""
    other = "equal" if sim.weights == "items" else "items"
    told_apart = [
        1
        for b in BACKBONES
        for m in METHODS
        if not honest_average(sim, b, m, sim.texts[b, m, "avg"], (other,))
    ]
    if not told_apart:
        return None
    metrics = dict(sim.paper.metrics)
    metrics["avg"] = replace(metrics["avg"], weights=other)

    def found(audit: Audit) -> bool:
        return any(f.check == "averages" and f.severity in SEEN for _, f in audit.findings)

    return replace(sim.paper, metrics=metrics), found


def inject_items(sim: Simulated, rng: np.random.Generator) -> Injected | None:
    """A wrong number of items stated for one set."""
    name = str(rng.choice(sim.parts))
    wrong = sim.items[name] + int(rng.choice([-3, -2, -1, 1, 2, 3]))
    if honest_column(column(sim, name, {}), wrong, sim.decimals, rounded_runs=sim.runs):
        return None
    metrics = dict(sim.paper.metrics)
    metrics[name] = replace(metrics[name], items=wrong)

    def found(audit: Audit) -> bool:
        return any(
            f.check == "granularity" and f.severity in SEEN and f.cells[0].endswith(f",{name}]")
            for _, f in audit.findings
        )

    return replace(sim.paper, metrics=metrics), found


def inject_figure(sim: Simulated, rng: np.random.Generator) -> Injected | None:
    """A figure that shows another number than the table, by two units or more."""
    m = str(rng.choice(METHODS))
    cell = sim.paper.cells[f"curve[{m},end]"]
    by = int(rng.choice([-1, 1])) * int(rng.integers(2, 30))
    value = cell.printed.face + Fraction(by, 10**cell.printed.decimals)
    if not 0 <= value <= 1:
        return None
    text = write(value, cell.printed.decimals, "half-up")
    return (
        change_cell(sim.paper, cell.ref, text),
        lambda a: reported(a, cell.ref, ("cross-check",)),
    )


def inject_claim(sim: Simulated, rng: np.random.Generator) -> Injected | None:
    """A difference stated two units or more off."""
    b, metric = str(rng.choice(BACKBONES)), str(rng.choice([*sim.parts, "avg"]))
    x, y = (str(v) for v in rng.choice(METHODS, 2, replace=False))
    gap = abs(Fraction(sim.texts[b, x, metric]) - Fraction(sim.texts[b, y, metric]))
    if Fraction(sim.texts[b, x, metric]) < Fraction(sim.texts[b, y, metric]):
        x, y = y, x
    by = Fraction(int(rng.integers(4, 40)), 10**sim.decimals)
    stated = write(gap + by, sim.decimals, "half-up")
    check = f"main[{b},{x},{metric}] - main[{b},{y},{metric}] = {stated}"
    claim = Claim("X", "text", "difference", "a wrong difference", {"checks": [check]})

    def found(audit: Audit) -> bool:
        return any(f.check == "claims" and f.numbers["claim"] == "X" for _, f in audit.findings)

    return replace(sim.paper, claims=(*sim.paper.claims, claim)), found


def inject_best(sim: Simulated, rng: np.random.Generator) -> Injected | None:
    """'Best everywhere' where a rival is printed higher and is higher."""
    method = str(rng.choice(METHODS))
    names = [*sim.parts, "avg"]
    beaten = any(
        Fraction(sim.texts[b, r, k]) > Fraction(sim.texts[b, method, k])
        and sim.shares[b, r, k] > sim.shares[b, method, k]
        for b in BACKBONES
        for r in METHODS
        for k in names
    )
    if not beaten:
        return None
    fields = {"method": method, "columns": {"main": names}}
    claim = Claim("X", "text", "best", "best everywhere", fields)

    def found(audit: Audit) -> bool:
        return any(f.check == "claims" and f.numbers["claim"] == "X" for _, f in audit.findings)

    return replace(sim.paper, claims=(*sim.paper.claims, claim)), found


def inject_ratio(sim: Simulated, rng: np.random.Generator) -> Injected | None:
    """A ratio column that its parts do not give, off by 5% to 100%."""
    m = str(rng.choice(METHODS))
    get = {k: sim.paper.cells[f"ratios[Small,{m},{k}]"].printed for k in ("gain", "steps", "rate")}
    value = get["rate"].face * Fraction(int(rng.integers(105, 200)), 100)
    text = write(value, get["rate"].decimals, "half-up")
    unit = Fraction(1, 10 ** get["rate"].decimals)
    highest = (get["gain"].face + Fraction(1, 1000)) / (get["steps"].face - Fraction(1, 200))
    if Fraction(text) - unit / 2 <= highest:
        return None
    ref = f"ratios[Small,{m},rate]"
    return change_cell(sim.paper, ref, text), lambda a: reported(a, ref, ("ratios",))


def inject_mark(sim: Simulated, rng: np.random.Generator) -> Injected | None:
    """Bold on a cell that is not the best."""
    b, name = str(rng.choice(BACKBONES)), str(rng.choice([*sim.parts, "avg"]))
    ranked = sorted(METHODS, key=lambda m: Fraction(sim.texts[b, m, name]))
    if sim.texts[b, ranked[-1], name] == sim.texts[b, ranked[-2], name]:
        return None
    ref = f"main[{b},{ranked[-2]},{name}]"
    table = sim.paper.tables["main"]
    cells = tuple(replace(c, mark="best") if c.ref == ref else c for c in table.cells)
    fields = {k: v for k, v in sim.paper.__dict__.items() if k not in ("tables", "cells")}
    paper = make_paper(**fields, tables={**sim.paper.tables, "main": replace(table, cells=cells)})
    return paper, lambda a: reported(a, ref, ("extremes",))


ERRORS: dict[str, Callable[[Simulated, np.random.Generator], Injected | None]] = {
    "cell that no count prints": inject_cell,
    "average that its parts do not give": inject_average,
    "cell cut off instead of rounded": inject_cut,
    "averages weighted otherwise than stated": inject_weights,
    "wrong number of items": inject_items,
    "figure and table disagree": inject_figure,
    "stated difference is wrong": inject_claim,
    "'best everywhere' is not": inject_best,
    "ratio does not follow": inject_ratio,
    "bold on the second best": inject_mark,
}
FOR_COMPARISON: dict[str, Callable[[Simulated, np.random.Generator], Injected | None]] = {
    "(slip in a cell, runs known to the judge)": lambda sim, rng: slip_in(sim, rng, True),
    "(cell cut off, runs known to the judge)": lambda sim, rng: cut_off(sim, rng, True),
}
ALL = {**ERRORS, **FOR_COMPARISON}


def false_alarms(tables: int, seed: int) -> tuple[int, list[str]]:
    """Honest papers with a contradiction, and what it said."""
    alarms, said = 0, []
    for i in range(tables):
        sim = draw(np.random.default_rng([seed, i]))
        wrong = [
            f.statement
            for _, f in audit_paper(sim.paper).findings
            if f.severity is Severity.CONTRADICTION
        ]
        alarms += bool(wrong)
        said += wrong[:1]
    return alarms, said


def detection(kind: str, wanted: int, seed: int) -> tuple[int, int, int]:
    """(detected, detectable, tried) for one kind of error."""
    detected = detectable = tried = 0
    place = list(ALL).index(kind)
    while detectable < wanted and tried < 20 * wanted:
        rng = np.random.default_rng([seed, 10_000 + place, tried])
        tried += 1
        injected = ALL[kind](draw(rng, plain="cut off" in kind), rng)
        if injected is None:
            continue
        detectable += 1
        detected += injected[1](audit_paper(injected[0]))
    return detected, detectable, tried


def main() -> int:
    """Run both studies and print them as a table and as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--errors", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start = time.perf_counter()
    alarms, said = false_alarms(args.tables, args.seed)
    print(f"honest papers with a contradiction: {alarms} of {args.tables}")
    for text in said[:5]:
        print("  ", text)
    result: dict[str, object] = {"honest": args.tables, "false_alarms": alarms}
    worst = 1.0
    for kind in ALL:
        detected, detectable, tried = detection(kind, args.errors, args.seed)
        rate = detected / detectable if detectable else float("nan")
        if kind in ERRORS:
            worst = min(worst, rate)
        result[kind] = [detected, detectable, tried]
        print(f"{kind:42s} {detected:4d} of {detectable:4d} detectable ({rate:.1%}), {tried} tried")
    print(json.dumps(result))
    print(f"{time.perf_counter() - start:.0f} s")
    return 0 if alarms == 0 and worst >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
