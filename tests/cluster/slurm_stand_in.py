"""A stand-in for Slurm's commands that runs every job on this machine, for tests of the profile.

    python slurm_stand_in.py install DIR      commands sbatch, srun, sacct, ... in DIR
    STAND_IN=STATE_DIR PATH=DIR:$PATH   use them

It takes the options that Snakemake's Slurm plugin uses and refuses others, as sbatch would. A job
is ended when its processes hold more memory than `--mem`, when its time `-t` is over, or by
scancel, with the states and texts that sacct prints for each. Two departures from a cluster keep
tests short: memory limits are multiplied by `STAND_IN_MEMORY` (default 1), and sacct answers once
a job has ended that had not at its last answer, or after `STAND_IN_PATIENCE` seconds (default 0).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "srun", "sacct", "squeue", "scancel", "scontrol", "sinfo")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


def install(folder: Path) -> None:
    """Write one executable per command."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COMMANDS:
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {name} "$@"\n')
        script.chmod(0o755)


def state() -> Path:
    return Path(os.environ["STAND_IN"])


def read(job: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((state() / job / "job.json").read_text())
    return found


def write(job: str, values: dict[str, Any]) -> None:
    path = state() / job / "job.json"
    path.with_suffix(".tmp").write_text(json.dumps(values))
    path.with_suffix(".tmp").replace(path)


def sbatch(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="sbatch", allow_abbrev=False)
    for flag in ("--parsable", "--requeue"):
        parser.add_argument(flag, action="store_true")
    for option in ("--job-name", "--output", "--export", "--comment", "--wrap", "--mem", "--nodes",
                   "--ntasks", "--ntasks-per-gpu", "--cpus-per-task", "--gpus", "--qos", "-A",
                   "-p", "-t", "-D", "-C"):  # fmt: skip
        parser.add_argument(option)
    call = vars(parser.parse_args(words))
    root = state()
    root.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        try:
            (root / str(number)).mkdir()
            break
        except FileExistsError:
            number += 1
    job = str(number)
    output = call["output"].replace("%j", job)
    write(job, {"id": job, "call": call, "words": words, "state": "PENDING", "output": output})
    subprocess.Popen(
        [sys.executable, __file__, "supervise", job],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    print(job)
    return 0


def supervise(job: str) -> int:
    """Run a job to its end and note its state."""
    values = read(job)
    call = values["call"]
    given = {"SLURM_JOB_ID": job, "SLURM_CPUS_PER_TASK": call["cpus_per_task"] or "1"}
    if call["gpus"]:
        given["SLURM_GPUS"] = call["gpus"]
    with Path(values["output"]).open("w") as log:
        process = subprocess.Popen(
            ["sh", "-c", call["wrap"]], cwd=call["D"], env={**os.environ, **given},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    write(job, {**values, "state": "RUNNING"})
    limit_mb = float(call["mem"] or "inf") * float(os.environ.get("STAND_IN_MEMORY", "1"))
    deadline = time.monotonic() + 60 * float(call["t"] or "inf")
    peak = 0.0
    ended = None
    while process.poll() is None and ended is None:
        peak = max(peak, resident_mb(process.pid))
        if peak > limit_mb:
            ended = "OUT_OF_MEMORY"
        elif time.monotonic() > deadline:
            ended = "TIMEOUT"
        elif (state() / job / "cancel").exists():
            ended = f"CANCELLED by {os.getuid()}"
        time.sleep(0.05)
    for pid in session(process.pid):
        os.kill(pid, signal.SIGKILL)
    code = process.wait()
    ended = ended or ("COMPLETED" if code == 0 else "FAILED")
    write(job, {**values, "state": ended, "peak_mb": round(peak)})
    return 0


def session(leader: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def resident_mb(leader: int) -> float:
    pages = 0
    for pid in session(leader):
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * PAGE_MB


def jobs() -> dict[str, dict[str, Any]]:
    names = sorted((p.name for p in state().iterdir() if p.name.isdigit()), key=int)
    return {name: read(name) for name in names if (state() / name / "job.json").exists()}


def states(words: list[str]) -> dict[str, str]:
    """State by id of the jobs of one name."""
    name = words[words.index("--name") + 1]
    return {
        job: values["state"] for job, values in jobs().items() if values["call"]["job_name"] == name
    }


def sacct(words: list[str]) -> int:
    if "--name" not in words:
        return 0  # asked for an account, a job's reason or its node, it has nothing to say
    told = state() / f"told-{words[words.index('--name') + 1]}"
    before = told.read_text().split() if told.exists() else []
    deadline = time.monotonic() + float(os.environ.get("STAND_IN_PATIENCE", "0"))
    while True:
        found = states(words)
        ended = [job for job, text in found.items() if text not in ("PENDING", "RUNNING")]
        if ended != before or len(ended) == len(found) or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    told.write_text(" ".join(ended))
    for job, text in found.items():
        print(f"{job}|{text}")
    return 0


def squeue(words: list[str]) -> int:
    for job, text in states(words).items():
        print(f"{job}|{text.split()[0]}")
    return 0


def scancel(words: list[str]) -> int:
    for job in words:
        if (state() / job).is_dir():
            (state() / job / "cancel").touch()
    return 0


def srun(words: list[str]) -> int:
    while words[0].startswith("-"):
        words = words[1:]
    os.execvp(words[0], words)


def scontrol(words: list[str]) -> int:
    print("MaxArraySize            = 1001\nMinJobAge               = 300 sec")
    return 0


def sinfo(words: list[str]) -> int:
    print("PARTITION\nstand-in*")
    return 0


def main(words: list[str]) -> int:
    name, rest = words[0], words[1:]
    if name == "install":
        install(Path(rest[0]))
        return 0
    if name == "supervise":
        return supervise(rest[0])
    run = {"sbatch": sbatch, "srun": srun, "sacct": sacct, "squeue": squeue, "scancel": scancel,
           "scontrol": scontrol, "sinfo": sinfo}  # fmt: skip
    return run[name](rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
