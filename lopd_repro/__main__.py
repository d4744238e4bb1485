"""`python -m lopd_repro` is `lopd-repro`."""

import sys

from lopd_repro.cli import main

sys.exit(main())
