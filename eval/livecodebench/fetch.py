"""Gets what the official suite needs, checked against pinned digests.

    python eval/livecodebench/fetch.py repository [FOLDER] [--source URL_OR_GIT_FOLDER]
    python eval/livecodebench/fetch.py data [FOLDER] [--source URL_OR_FOLDER]

Without FOLDER: `official/` and `official-data/` beside this file, where the adapter looks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lopd_repro.benchmarks.lcb import official_data
from lopd_repro.benchmarks.lcb.official import REPOSITORY
from lopd_repro.errors import UserError

HERE = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("repository", "data"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--source", default="", help="instead of the pinned address")
    arguments = parser.parse_args()
    try:
        if arguments.what == "repository":
            REPOSITORY.fetch(arguments.folder or HERE / "official", arguments.source)
        else:
            official_data.prepare(arguments.folder or HERE / "official-data", arguments.source)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
