"""The bill: jobs, rollouts, tokens, device hours and disk by rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from lopd_repro.plan.cost import Device, Rates, seconds
from lopd_repro.plan.graph import Job
from lopd_repro.plan.work import Estimator

CPU_KINDS = ("other", "download")


@dataclass
class Line:
    """One rule's sums; hours of devices, or of a processor where `device` is false."""

    rule: str
    device: bool = False
    jobs: int = 0
    rollouts: float = 0.0
    sampled: float = 0.0
    scored: float = 0.0
    hours: float = 0.0
    disk: float = 0.0


@dataclass
class Bill:
    """All lines, and the largest transient need of disk of one job."""

    lines: list[Line]
    peak: float

    def total(self, device: bool | None = None) -> Line:
        """Sum of the lines, of those on devices, or of the others."""
        found = Line("total", bool(device))
        for line in self.lines:
            if device in (None, line.device):
                for name in ("jobs", "rollouts", "sampled", "scored", "hours", "disk"):
                    setattr(found, name, getattr(found, name) + getattr(line, name))
        return found

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"rules": [asdict(line) for line in self.lines], "peak_disk_of_a_job": self.peak}


def make(
    jobs: Iterable[Job],
    estimator: Estimator,
    device: Device,
    rates: Rates,
) -> Bill:
    """The bill of some jobs."""
    lines: dict[str, Line] = {}
    peak = 0.0
    for job in jobs:
        work = estimator.work(job)
        line = lines.setdefault(job.rule, Line(job.rule))
        line.device = line.device or work.kind not in CPU_KINDS
        line.jobs += 1
        line.rollouts += work.rollouts
        line.sampled += work.sampled
        line.scored += work.scored + work.trained + work.embedded
        line.hours += seconds(work, _measured_as(job), device, estimator.known, rates) / 3600
        line.disk += work.disk
        peak = max(peak, work.peak)
    return Bill(sorted(lines.values(), key=lambda line: -line.hours), peak)


def text(bill: Bill, known: Mapping[str, Any], device: str, gpus: int, measured: str) -> str:
    """The bill on one screen, with what it rests on."""
    head = f"{'rule':28}{'jobs':>6}{'rollouts':>10}{'sampled M':>11}{'scored M':>10}"
    head += f"{device + ' h':>10}{'disk GB':>9}"
    rows = [head]
    small = [line for line in bill.lines if not line.device and line.disk < 5e6]
    for line in bill.lines:
        if line not in small:
            rows.append(_row(line))
    other = Line(f"{len(small)} rules without a model")
    other.jobs = sum(line.jobs for line in small)
    other.hours = sum(line.hours for line in small)
    rows.append(_row(other))
    on, off = bill.total(True), bill.total(False)
    rows += [_row(replace(on, rule="on devices")), ""]
    busy = known["busy"]["value"]
    days = on.hours / gpus / busy / 24
    rows.append(
        f"{on.jobs + off.jobs} jobs: {on.hours:.3g} hours on {device}, and {off.hours:.2g} hours "
        f"(*) without a device. With {gpus} of them, {busy:.0%} busy: {days:.2g} days"
    )
    disk = (on.disk + off.disk) / 1e9
    rows.append(
        f"disk: {disk:.3g} GB stay, and up to {bill.peak / 1e9:.3g} GB for each training that runs"
    )
    rows.append(measured or "model of cost: lopd_repro/plan/assumptions.yaml, nothing measured:")
    if not measured:
        efficiency = known["efficiency"]
        rows.append(
            "  share of peak: "
            + ", ".join(f"{name} {entry['value']}" for name, entry in efficiency.items())
            + "; shares of the token budgets that are sampled: "
            + ", ".join(f"{d} {known['tokens'][d]['sampled_share']['value']}"
                        for d in ("tool_use", "coding"))
        )  # fmt: skip
    return "\n".join(rows)


def _row(line: Line) -> str:
    unit = "" if line.device else "*"
    return (
        f"{line.rule[:27]:28}{line.jobs:>6}{line.rollouts:>10.0f}{line.sampled / 1e6:>11.3g}"
        f"{line.scored / 1e6:>10.3g}{line.hours:>9.3g}{unit or ' '}{line.disk / 1e9:>9.3g}"
    )


def _measured_as(job: Job) -> str:
    """The name under which a rule's jobs leave their times."""
    return job.rule.removesuffix("_variant") if job.rule != "train_variant" else job.rule
