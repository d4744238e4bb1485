"""Stands in for `rsync` where there is none: what Snakemake's storage plugin `fs` asks of it.

    rsync_stand_in.py install FOLDER       puts an executable `rsync` into FOLDER
    rsync --recursive --times --copy-links SOURCE TARGET

A source that ends with a slash is a folder whose content is copied; times are kept, links followed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def main(words: list[str]) -> None:
    """Copy, or install."""
    if words[0] == "install":
        target = Path(words[1]) / "rsync"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"#!{sys.executable} -I\n{Path(__file__).read_text()}")
        target.chmod(0o755)
        return
    *options, source, to = words
    if set(options) != {"--recursive", "--times", "--copy-links"}:
        sys.exit(f"rsync stand-in: found {options}")
    if source.endswith("/"):
        shutil.copytree(source, to, dirs_exist_ok=True)
    else:
        shutil.copy2(source, to)


if __name__ == "__main__":
    main(sys.argv[1:])
