"""Every rule of the paper's configuration, from download to page, on tiny stand-ins.

    python benchmarks/paper_stand_ins.py FOLDER [--cores N] [--without bfcl evalplus]

Makes the stand-ins (stand_ins.py) and runs the workflow on them: each rule's command line starts on
real files, with the paper's settings but for the changes that stand_ins.py lists. Prints for every
rule of the paper's configuration how many of its jobs ran, or why none could. Exit code 1 if a job
failed. The benchmarks' environments are installed where they are not yet (network); `--without`
leaves such a benchmark out. A second call goes on where the first ended.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from stand_ins import make

from lopd_repro.plan import graph
from lopd_repro.workflow.configuration import ROOT

_CODE = "official code has no stand-in"
NO_STAND_IN = {
    "acebench_repository": f"{_CODE}; the mini-suite ran",
    "acebench_environment": _CODE,
    "livecodebench_repository": f"{_CODE}; the mini-suite ran",
    "livecodebench_environment": _CODE,
    "vllm_environment": "a GPU's vLLM; the stand-ins are sampled and served with transformers",
    "livecodebench_data": "the official problems are checked by digest and number",
}
_FINISHED = re.compile(r"^Finished jobid: \d+ \(Rule: (\w+)\)", re.MULTILINE)
_FAILED = re.compile(r"^Error in rule (\w+)", re.MULTILINE)


def main() -> int:
    """Make, run, tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--without", nargs="*", default=[], choices=("bfcl", "evalplus"))
    parser.add_argument("--target", default="all", help="all, or a file below FOLDER/results")
    given = parser.parse_args()
    config = given.folder.resolve() / "config.yaml"
    if not config.is_file():
        make(given.folder, given.without)
    targets = [given.target if given.target == "all" else str(config.parent / given.target)]
    began = time.perf_counter()
    said = _snakemake(config, given.cores, targets)
    (config.parent / "snakemake.log").write_text(said)
    finished, failed = Counter(_FINISHED.findall(said)), Counter(_FAILED.findall(said))
    for rule, jobs in Counter(job.rule for job in graph.jobs([_paper()], ["all"])).items():
        if finished[rule] or failed[rule]:
            text = f"{finished[rule]} ran" + (f", {failed[rule]} FAILED" if failed[rule] else "")
        else:
            text = NO_STAND_IN.get(rule, "none ran in this call")
        print(f"{rule:30} {jobs:4} at the paper's scale; {text}")
    print(
        f"{sum(finished.values())} jobs in {time.perf_counter() - began:.0f} s, in {config.parent}"
    )
    return 1 if failed else 0


def _paper() -> Path:
    return ROOT / "config/paper.yaml"


def _snakemake(config: Path, cores: int, targets: list[str]) -> str:
    command = [sys.executable, "-m", "snakemake", "--cores", str(cores), "--keep-going"]
    command += ["--configfile", str(config), "--", *targets]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode and not _FAILED.search(said):
        print(said[-3000:], file=sys.stderr)
        raise SystemExit(f"snakemake: exit code {done.returncode}")
    return said


if __name__ == "__main__":
    sys.exit(main())
