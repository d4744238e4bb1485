"""The result of one conformance entry, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass


class AbsentError(Exception):
    """Raised by an adapter that needs something this machine lacks; the message says what."""


@dataclass(frozen=True)
class Outcome:
    """Largest absolute errors over an entry's values and gradients, and the verdict.

    `grad_error` is None where no gradient was compared. `ok` means that every compared array lies
    within the entry's tolerance; `detail` names what does not, or what differs on purpose.
    """

    value_error: float
    grad_error: float | None
    ok: bool
    detail: str = ""
