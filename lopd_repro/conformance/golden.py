"""One entry's recorded arrays: hands out inputs, compares results, notices what nobody compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lopd_repro.conformance.outcome import Outcome

DEFAULT_TOLERANCE = {"rtol": 1e-9, "atol": 1e-12}


class Comparison:
    """Collects absolute errors against recorded values at an entry's tolerance."""

    def __init__(self, entry: dict[str, Any]) -> None:
        tolerance = entry.get("tolerance") or DEFAULT_TOLERANCE
        self.rtol = float(tolerance["rtol"])
        self.atol = float(tolerance["atol"])
        self.value_error: float | None = None
        self.grad_error: float | None = None
        self.notes: list[str] = []
        self._failed: list[str] = []

    def value(self, name: str, ours: Any, recorded: Any, atol: float | None = None) -> None:
        """Compare a value; `atol` overrides the entry's where a part needs its own."""
        self.value_error = max(self.value_error or 0.0, self._error(name, ours, recorded, atol))

    def grad(self, name: str, ours: Any, recorded: Any) -> None:
        """Compare a gradient."""
        self.grad_error = max(self.grad_error or 0.0, self._error(name, ours, recorded, None))

    def fail(self, reason: str) -> None:
        """Make the entry differ for a reason that is no number."""
        self._failed.append(reason)

    def outcome(self) -> Outcome:
        """The verdict; an entry of which nothing was compared is not ok."""
        if self.value_error is None:
            self.fail("no value was compared")
        detail = "; ".join([*self._failed, *self.notes])
        return Outcome(self.value_error or 0.0, self.grad_error, not self._failed, detail)

    def _error(self, name: str, ours: Any, recorded: Any, atol: float | None) -> float:
        left, right = _numeric(ours), _numeric(recorded)
        if left.shape != right.shape:
            self.fail(f"{name}: shape {left.shape}, recorded {right.shape}")
            return float("inf")
        allowed = self.atol if atol is None else atol
        close = np.allclose(left, right, rtol=self.rtol, atol=allowed, equal_nan=True)
        if not close:
            self.fail(f"{name} differs")
        with np.errstate(invalid="ignore"):
            gap = np.abs(left - right)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        gap = np.where(same, 0.0, np.where(np.isnan(gap), np.inf, gap))
        return float(gap.max()) if gap.size else 0.0


class Golden(Comparison):
    """A `Comparison` over an entry's .npz file.

    `tensor` reads an input, `leaf` one that collects a gradient, `check` and `check_grad` compare
    with a recorded array. Recorded gradients that were never compared make the entry differ,
    other untouched arrays are named in its detail.
    """

    def __init__(self, entry: dict[str, Any], path: Path) -> None:
        super().__init__(entry)
        with np.load(path, allow_pickle=False) as arrays:
            self._arrays: dict[str, NDArray[Any]] = {name: arrays[name] for name in arrays.files}
        self._touched: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def array(self, name: str) -> NDArray[Any]:
        """The recorded array."""
        self._touched.add(name)
        return self._arrays[name]

    def tensor(self, name: str) -> Tensor:
        """The recorded array as a tensor."""
        return torch.from_numpy(np.array(self.array(name)))

    def leaf(self, name: str) -> Tensor:
        """The recorded array as a leaf that requires a gradient."""
        return self.tensor(name).requires_grad_()

    def number(self, name: str) -> float:
        """A recorded scalar."""
        return float(self.array(name))

    def check(self, name: str, ours: Any) -> None:
        """Compare a result with the recorded array of that name."""
        self.value(name, ours, self.array(name))

    def check_if_recorded(self, name: str, ours: Any) -> None:
        """Compare if the file holds that array."""
        if name in self:
            self.check(name, ours)

    def check_grad(self, name: str, leaf: Tensor) -> None:
        """Compare a leaf's gradient with the recorded one; no gradient is a zero gradient."""
        ours = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        self.grad(name, ours, self.array(name))

    def outcome(self) -> Outcome:
        """The verdict, after a look at what was never compared."""
        for name in sorted(self._arrays.keys() - self._touched):
            if name.startswith("grad"):
                self.fail(f"{name} was not compared")
            else:
                self.notes.append(f"{name} not compared")
        return super().outcome()


def _numeric(value: Any) -> NDArray[np.float64]:
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    return np.asarray(value, dtype=np.float64)
