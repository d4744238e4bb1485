"""Runs one command and takes its whole process group along when the parent is gone.

    python -I -S supervise.py COMMAND...

Standard input is a pipe from the parent that nobody writes to: its end means that the parent
stopped, or died however it did. The group then gets SIGTERM, and SIGKILL after a while.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

GRACE_SECONDS = 10.0


def main() -> int:
    """Exit code of the command; 128 plus the number of the signal that ended it."""
    # The group's SIGTERM reaches this process too, which must outlive the others.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(
        sys.argv[1:],
        stdin=subprocess.DEVNULL,
        preexec_fn=_default_signals,  # no threads yet
    )
    threading.Thread(target=_watch_parent, args=(child,), daemon=True).start()
    code = child.wait()
    # What the command started (an engine process, say) must not outlive it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(0, signal.SIGTERM)
    return code if code >= 0 else 128 - code


def _watch_parent(child: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGTERM)
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(0, signal.SIGKILL)


def _default_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
