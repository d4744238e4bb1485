"""Worlds of ranks for tests: processes on this machine that talk over gloo.

They are forked from a server that has imported everything and done nothing: an import costs more
than the trainings, and autograd cannot be used on both sides of a fork.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["rank_runs", "torch.distributed.fsdp", "rank_worlds"])


def in_world(
    size: int, work: Callable[..., None], folder: Path, seconds: float = 900.0
) -> list[str]:
    """Run `work(ranks, folder)` in so many ranks; their errors, in order of ranks ('' for none).

    A rank that has not ended in time is ended, and its error is "hangs".
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    processes = [
        _CONTEXT.Process(target=_rank, args=(rank, size, port, work, folder))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    errors = []
    for rank, process in enumerate(processes):
        process.join(seconds)
        if process.is_alive():
            process.kill()
            process.join()
            errors.append("hangs")
            continue
        said = folder / f"error{rank}"
        errors.append(said.read_text() if said.exists() else "")
        if process.exitcode != 0 and not errors[-1]:
            errors[-1] = f"exit code {process.exitcode}"
    return errors


def _rank(rank: int, size: int, port: int, work: Callable[..., None], folder: Path) -> None:
    from lopd_repro.parallel.ranks import joined

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    try:
        with joined("cpu", minutes=10) as ranks:
            work(ranks, folder)
    except BaseException:
        (folder / f"error{rank}").write_text(traceback.format_exc())
        os._exit(1)


def save(ranks: Any, folder: Path, name: str, value: Any) -> None:
    """Leave a value for the test; the first rank's."""
    if ranks.first:
        torch.save(value, folder / f"{name}.pt")


def load(folder: Path, name: str) -> Any:
    """What a world has left."""
    return torch.load(folder / f"{name}.pt", weights_only=False)
