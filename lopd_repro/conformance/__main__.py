"""`python -m lopd_repro.conformance DIR`."""

from __future__ import annotations

import sys

from lopd_repro.conformance.framework import main

if __name__ == "__main__":
    sys.exit(main())
