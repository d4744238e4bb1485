"""The options of commands that several ranks can run, and their ranks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.parallel.launch import start_ranks
from lopd_repro.parallel.ranks import Ranks, joined, rank_in_environment


def add_ranks(parser: argparse.ArgumentParser) -> None:
    """`--ranks` and how long they wait for each other."""
    parser.add_argument(
        "--ranks", type=int, default=1, help="processes on this machine, a GPU each"
    )
    parser.add_argument(
        "--rank-minutes",
        type=float,
        default=120.0,
        help="how long a rank waits for the others, which may still be sampling",
    )


@contextmanager
def ranks_of(
    args: argparse.Namespace, settings: Mapping[str, Any], sharded: bool = False
) -> Iterator[Ranks]:
    """This process among the ranks that the options ask for, which it starts if need be.

    sharded: hold weights in shards even where there is one. Errors name the rank they came from.
    """
    start_ranks(args.ranks, sys.argv[1:])
    device = str(settings.get("engine", {}).get("device", "cpu"))
    try:
        with joined(device, sharded, args.rank_minutes) as ranks:
            yield ranks
    except UserError as error:
        if rank := rank_in_environment():
            raise UserError(f"rank {rank}: {error}") from None
        raise
