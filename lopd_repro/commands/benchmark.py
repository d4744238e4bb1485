"""`lopd-repro benchmark`: a run's selected checkpoint on one benchmark, through its adapter.

    lopd-repro benchmark --file eval/bfcl/adapter.py --settings JSON --checkpoint DIR --seed 0 \
        --state DIR --out FILE

The checkpoint is served behind a local endpoint while the adapter runs. Finished tasks stay in the
state folder, under a name made from the checkpoint's and the settings' digests: a second attempt
goes on, another checkpoint starts anew.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from lopd_repro.benchmarks import checked_rows, load_benchmark
from lopd_repro.files import digest_file, digest_json, write_jsonl
from lopd_repro.serving import ServerSettings, serve
from lopd_repro.settings import build, read_settings
from lopd_repro.training.lock import exclusive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--file", type=Path, required=True, help="the benchmark's adapter")
    parser.add_argument("--settings", required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True, help="training seed of the run")
    parser.add_argument("--state", type=Path, required=True, help="what has finished so far")
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Serve, ask, check, write."""
    began = time.perf_counter()
    settings = read_settings(args.settings)
    serving = dict(settings["serve"])
    # Every training seed gets draws of its own, so that untrained models vary over seeds too.
    serving["seed"] = int(serving.get("seed", 0)) + args.seed
    benchmark = load_benchmark(args.file, settings["benchmark"])
    checkpoint = args.checkpoint.resolve()
    server = build(ServerSettings, serving, "serve")
    with exclusive(args.state):
        # A longer wait for the server, or another place of its interpreter, changes no answer.
        asked = {k: v for k, v in serving.items() if k not in ("startup_seconds", "python")}
        state = _state(args.state, checkpoint, args.file, {**settings, "serve": asked})
        with serve(checkpoint, server, str(checkpoint), state / "server.log") as endpoint:
            rows = benchmark.run(endpoint, checkpoint, state)
    rows = checked_rows(rows, benchmark.expected(), benchmark.name)
    mean = sum(row["score"] for row in rows) / len(rows)
    print(f"{benchmark.name}: {len(rows)} rows, mean {mean:.4f}", file=sys.stderr, flush=True)
    write_jsonl(
        args.out,
        rows,
        expected=len(benchmark.expected()),
        benchmark=benchmark.name,
        data=benchmark.data,
        scorer=benchmark.scorer,
        partial=benchmark.partial,
        report=getattr(benchmark, "report", {}),
        serving=endpoint.manifest,
        settings=settings["benchmark"],
        wall_seconds=round(time.perf_counter() - began, 3),
    )
    return 0


def _state(folder: Path, checkpoint: Path, adapter: Path, settings: dict[str, Any]) -> Path:
    """This checkpoint's folder; what other checkpoints, data or settings left is removed."""
    digests = [_digests(checkpoint), _digests(adapter.parent / "data"), digest_file(adapter)]
    own = folder / digest_json([digests, settings])[:16]
    for other in folder.iterdir():
        if other.is_dir() and other != own:
            shutil.rmtree(other)
    own.mkdir(parents=True, exist_ok=True)
    return own.resolve()


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): digest_file(path) for path in files}
