"""Runs one command and ends everything it started, at the latest when the parent is gone.

    python -I -S supervise.py GRACE COMMAND...

Standard input is a pipe from the parent that nobody writes to: its end means that the parent wants
to stop, or died however it did. The command's process group then gets SIGTERM, and SIGKILL after
GRACE seconds; the same goes for what a command leaves behind that ends by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

GRACE_SECONDS = 10.0
_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """Exit code of the command; 128 plus the number of the signal that ended it."""
    if sys.platform == "linux":
        # Orphans of the command become this process's children, so that it sees them end.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, process_group=0)
    while child.poll() is None:
        readable, _, _ = select.select([0], [], [], 0.2)
        if readable and not os.read(0, 1024):
            break
    end_group(child, float(sys.argv[1]))
    code = child.wait()
    return code if code >= 0 else 128 - code


def end_group(leader: subprocess.Popen[bytes], grace: float) -> None:
    """SIGTERM, patience, SIGKILL for the group that `leader` leads or led."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGTERM)
        until = time.monotonic() + grace
        while time.monotonic() < until:
            # The leader's status is kept by `poll`; the rest is reaped so that the group empties.
            if leader.poll() is not None:
                with contextlib.suppress(ChildProcessError):
                    while os.waitpid(-1, os.WNOHANG)[0]:
                        pass
            os.killpg(leader.pid, 0)
            time.sleep(0.02)
        os.killpg(leader.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
