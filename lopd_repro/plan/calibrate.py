"""What a finished run says about the model of cost: tokens of a rollout, and seconds per token.

Read are Snakemake's benchmark files (`benchmarks/**/*.tsv`), the runs' `metrics.jsonl` and the
evaluations' rows. Rates are fitted on the jobs of the first seed; the other seeds say how well they
predict. Rates hold for backbones like the run's and for the machine it ran on.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.files import read_jsonl
from lopd_repro.plan.cost import Rates, forward_passes
from lopd_repro.plan.graph import Job
from lopd_repro.plan.work import Estimator, Tokens, Work

_SAMPLING = ("rollout", "validation")


@dataclass(frozen=True)
class Measured:
    """One job that ran: wall seconds, and those of sampling and of all else that its log tells."""

    job: Job
    seconds: float
    sampling: float = 0.0
    scoring: float = 0.0

    @property
    def seed(self) -> str:
        """Its seed; empty if it has none."""
        return self.job.get("seed")


def measured_jobs(results: Path) -> list[Measured]:
    """Every job with a benchmark file; `UserError` if there is none."""
    found = []
    for path in sorted((results / "benchmarks").rglob("*.tsv")):
        job = _job(path.relative_to(results / "benchmarks").with_suffix("").parts)
        with path.open() as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        if not rows:
            continue
        sampling, scoring = _phases(results, job)
        found.append(Measured(job, float(rows[-1]["s"]), sampling, scoring))
    if not found:
        raise UserError(f"--calibrate {results}: no benchmarks/**/*.tsv of a finished run")
    return found


def measured_tokens(results: Path) -> dict[tuple[str, str], Tokens]:
    """Tokens of a rollout by domain and use, from the runs and evaluations."""
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for path in sorted(results.glob("runs/*/*/*/seed*/metrics.jsonl")):
        domain, before = path.parts[-5], 0.0
        for row in read_jsonl(path):
            if row["kind"] == "train":
                rollouts = row["generations"] - before
                before = row["generations"]
                read = row.get("forwarded_student", 0.0) - row["tokens"]
                _add(sums[domain, "rollout"], rollouts, row["tokens"], read)
            elif row["kind"] == "validation":
                _add(sums[domain, "validation"], 1.0, row["tokens_mean"], 0.0)
    for path in sorted(results.glob("eval/*/*/*/*/seed*.jsonl")):
        benchmark, domain = path.parts[-5], path.parts[-4]
        use = "evaluation" if benchmark == "envscaler" else benchmark
        for row in read_jsonl(path):
            _add(sums[domain, use], 1.0, row.get("tokens", 0), row.get("prompt_tokens", 0))
    return {key: Tokens(r / n, s / n) for key, (n, s, r) in sums.items() if n and s}


def fit(jobs: Iterable[Measured], estimator: Estimator) -> Rates:
    """Rates from some jobs."""
    groups: dict[str, list[tuple[Measured, Work]]] = defaultdict(list)
    rules: dict[str, list[float]] = defaultdict(list)
    for one in jobs:
        work = _work(estimator, one.job)
        if work is None:
            continue
        if work.tokens and work.kind != "other":
            groups[work.kind].append((one, work))
        else:
            rules[one.job.rule].append(one.seconds)
    fixed, sample, score = {}, {}, {}
    for kind, members in groups.items():
        sampled = sum(w.sampled for _, w in members)
        passed = sum(forward_passes(w, estimator.known) for _, w in members)
        spent = sum(m.seconds for m, _ in members)
        sampling, scoring = sum(m.sampling for m, _ in members), sum(m.scoring for m, _ in members)
        if not sampling:
            # Only the whole is known: it goes to what the job mostly does.
            sampling, scoring = (spent, 0.0) if sampled else (0.0, spent)
        fixed[kind] = max(0.0, spent - sampling - scoring) / len(members)
        sample[kind] = sampling / sampled if sampled else 0.0
        score[kind] = scoring / passed if passed else 0.0
    means = {rule: sum(values) / len(values) for rule, values in rules.items()}
    return Rates(fixed, sample, score, means)


def first_seed(jobs: Iterable[Measured]) -> str:
    """The lowest seed among the jobs."""
    return min((job.seed for job in jobs if job.seed), key=int, default="")


def _work(estimator: Estimator, job: Job) -> Work | None:
    """None for a job that the configuration does not know, such as another run's backbone."""
    try:
        return estimator.work(job)
    except (KeyError, UserError):
        return None


def _add(entry: list[float], rollouts: float, sampled: float, read: float) -> None:
    entry[0] += rollouts
    entry[1] += sampled
    entry[2] += max(0.0, read)


def _job(parts: tuple[str, ...]) -> Job:
    """The job of a benchmark file's path, as the rules in workflow/ and eval/ lay them out."""
    if parts[0] == "train" and len(parts) == 5:
        _, domain, backbone, method, seed = parts
        names = {"domain": domain, "backbone": backbone, "method": method}
        return _made(f"train_{method}", {**names, "seed": seed.removeprefix("seed")})
    if parts[0] == "evaluate" and len(parts) == 5:
        _, benchmark, backbone, method, seed = parts
        benchmark = benchmark.removeprefix("envscaler_")
        names = {"backbone": backbone, "method": method, "seed": seed.removeprefix("seed")}
        return _made(f"evaluate_{benchmark}", names)
    keys = ("backbone", "method")
    return _made(parts[0], dict(zip(keys, parts[1:], strict=False)))


def _made(rule: str, names: Mapping[str, str]) -> Job:
    return Job(rule, tuple(names.items()))


def _phases(results: Path, job: Job) -> tuple[float, float]:
    """Seconds of sampling and of all else in a training's log."""
    if not job.rule.startswith("train_"):
        return 0.0, 0.0
    where = [job.get(name) for name in ("domain", "backbone", "method")]
    path = results.joinpath("runs", *where, f"seed{job.get('seed')}", "metrics.jsonl")
    if not path.is_file():
        return 0.0, 0.0
    sums: dict[bool, float] = {True: 0.0, False: 0.0}
    for row in read_jsonl(path):
        phases: Any = row.get("seconds", {})
        for phase, spent in phases.items():
            sums[phase in _SAMPLING] += float(spent)
    return sums[True], sums[False]
