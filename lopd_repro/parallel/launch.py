"""Starting the ranks of a training: torchrun in this process's place."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from lopd_repro.errors import UserError


def start_ranks(ranks: int, command: Sequence[str]) -> None:
    """Become torchrun with so many processes of `python -m lopd_repro COMMAND` on this machine.

    Returns where there is nothing to start: one rank, or torchrun has started this process. When
    one rank fails torchrun ends the others.
    """
    if ranks < 1:
        raise UserError(f"--ranks: found {ranks}, allowed: 1 or more")
    if "WORLD_SIZE" in os.environ:
        started = int(os.environ["WORLD_SIZE"])
        if ranks not in (1, started):
            raise UserError(f"--ranks: found {ranks}, but torchrun has started {started}")
        return
    if ranks == 1:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    os.execv(sys.executable, [sys.executable, *torchrun, "-m", "lopd_repro", *command])
