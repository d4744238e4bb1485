"""Gets the official repository at its pinned commit, checked against a digest of its files.

    python eval/acebench/fetch.py [FOLDER] [--source URL_OR_GIT_FOLDER]

Without FOLDER: `official/` beside this file, where the adapter looks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lopd_repro.benchmarks.ace.repository import REPOSITORY
from lopd_repro.errors import UserError


def main() -> int:
    """Fetch; one line and exit code 2 if that cannot be done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = Path(__file__).resolve().parent / "official"
    parser.add_argument("folder", nargs="?", type=Path, default=default)
    parser.add_argument("--source", default="", help="instead of the pinned address")
    arguments = parser.parse_args()
    try:
        REPOSITORY.fetch(arguments.folder, arguments.source)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
