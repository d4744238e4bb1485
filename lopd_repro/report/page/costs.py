"""What the jobs cost, from the time files that Snakemake writes for each."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.report.page.grid import Column, Row, grid
from lopd_repro.report.page.markup import el
from lopd_repro.report.page.numbers import as_float, seconds
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.section import Section, absent, fold
from lopd_repro.report.page.settings import PageSettings

FOLDER = "benchmarks"


@dataclass(frozen=True)
class Job:
    """One job's kind, a finer name, and what it took in seconds, CPU seconds and MiB, if known."""

    kind: str
    part: str
    wall: float | None
    cpu: float | None
    memory: float | None


def costs_section(results: Results, settings: PageSettings) -> Section:
    """By kind of job, and training and evaluation by method."""
    jobs = list(read_jobs(results))
    if not jobs:
        return Section("costs", "Costs", absent(results, "table1.csv"))
    note = (
        f"{headline(jobs)}. Wall time is summed over jobs, some of which ran side by side; CPU time"
        " and memory are Snakemake's, of a job and its children. Jobs are those whose times lie in"
        f" {FOLDER}/, from whichever run of the workflow made them last."
    )
    columns = _columns("Kind of job")
    by_method = [job for job in jobs if job.part]
    detail = grid(
        "Costs by method",
        _columns("Kind of job and method"),
        _rows(by_method, lambda job: f"{job.kind}: {settings.label(job.part)}"),
    )
    body = [
        el("p", note),
        grid("Costs by kind of job", columns, [*_rows(jobs, lambda job: job.kind), _total(jobs)]),
        fold("Training and evaluation by method", detail) if by_method else None,
    ]
    return Section("costs", "Costs", body)


def headline(jobs: Sequence[Job]) -> str:
    """Number of jobs and their time in one line."""
    wall, cpu = _sum(job.wall for job in jobs), _sum(job.cpu for job in jobs)
    share = f" (CPU / wall {cpu / wall:.2f})" if wall else ""
    return f"{len(jobs)} jobs, {seconds(wall)} of wall time, {seconds(cpu)} of CPU time{share}"


def read_jobs(results: Results) -> Iterator[Job]:
    """One per time file; the page's own is left out, since it would change the page."""
    folder = results.path(FOLDER)
    for path in sorted(folder.rglob("*.tsv")):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts == ("page",):
            continue
        kind, part = _names(parts)
        for row in _times(path):
            yield Job(
                kind,
                part,
                as_float(row.get("s")),
                as_float(row.get("cpu_time")),
                as_float(row.get("max_rss")),
            )


def _names(parts: tuple[str, ...]) -> tuple[str, str]:
    """Kind of job and method from the path: train/DOMAIN/BACKBONE/METHOD/seedN and
    evaluate/BENCHMARK/BACKBONE/METHOD/seedN name a method, others only a kind."""
    if parts[0] == "train" and len(parts) == 5:
        return f"train {parts[1].replace('_', ' ')}", parts[3]
    if parts[0] == "evaluate" and len(parts) >= 4:
        return f"evaluate {parts[1]}", parts[-2]
    return parts[0].replace("_", " "), ""


def _times(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: not a time file ({error})") from None
    if not all("s" in row for row in rows):
        raise UserError(f"{path}: not a time file (no column s)")
    return rows


def _columns(first: str) -> list[Column]:
    titles = ("Jobs", "Wall, s", "CPU, s", "Share of wall", "CPU / wall", "Largest memory, MiB")
    return [Column(first), *map(Column, titles)]


def _rows(jobs: Sequence[Job], key: Callable[[Job], str]) -> Iterator[Row]:
    """Rows by key, the costliest first."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(key(job), []).append(job)
    total = _sum(job.wall for job in jobs)
    for name, own in sorted(groups.items(), key=lambda item: -_sum(job.wall for job in item[1])):
        yield _row(name, own, total)


def _total(jobs: Sequence[Job]) -> Row:
    return _row("all", jobs, _sum(job.wall for job in jobs))


def _row(name: str, jobs: Sequence[Job], total: float) -> Row:
    wall, cpu = _sum(job.wall for job in jobs), _sum(job.cpu for job in jobs)
    memory = max((job.memory for job in jobs if job.memory is not None), default=None)
    return [
        name,
        f"{len(jobs)}",
        f"{wall:,.0f}",
        f"{cpu:,.0f}",
        f"{100 * wall / total:.1f}%" if total else "",
        f"{cpu / wall:.2f}" if wall else "",
        "" if memory is None else f"{memory:,.0f}",
    ]


def _sum(values: Iterator[float | None]) -> float:
    return sum(value for value in values if value is not None)
