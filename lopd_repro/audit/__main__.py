"""`python -m lopd_repro.audit`: the same as `lopd-repro audit`."""

from __future__ import annotations

import argparse
import sys

from lopd_repro.audit.command import add_arguments, run
from lopd_repro.errors import UserError


def main() -> int:
    """Parse the command line; 0 unless the input is unusable, then one line and 2."""
    parser = argparse.ArgumentParser(prog="lopd-repro audit", description=run.__doc__)
    add_arguments(parser)
    try:
        return run(parser.parse_args())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
