"""Unbiased pass@k.

Departs from the estimator that LiveCodeBench and EvalPlus share: it returns 1.0 for k > n even
with no success, here that is refused unless asked for by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal


def pass_at_k(
    n: int, c: int, k: int, *, beyond: Literal["refuse", "reference"] = "refuse"
) -> float:
    """Chance that k of n samples, c of them correct, hold a correct one: 1 - C(n-c,k)/C(n,k).

    Needs 0 <= c <= n and 1 <= k <= n; else ValueError, or with `beyond="reference"` the shared
    estimator's 1.0.
    """
    if k < 1 or n < 0 or c < 0:
        raise ValueError(f"pass@k needs k >= 1 and counts >= 0, got n={n}, c={c}, k={k}")
    if (k > n or c > n) and beyond == "refuse":
        raise ValueError(f"pass@k needs k <= n and c <= n, got n={n}, c={c}, k={k}")
    if n - c < k:
        return 1.0
    miss = 1.0
    for i in range(n - c + 1, n + 1):
        miss *= 1.0 - k / i
    return 1.0 - miss


def mean_pass_at_k(problems: Sequence[tuple[int, int]], k: int) -> float:
    """Mean over problems given as (samples, correct); every problem needs at least k samples."""
    if not problems:
        raise ValueError("pass@k of no problems")
    return sum(pass_at_k(n, c, k) for n, c in problems) / len(problems)


def counted(samples: Iterable[tuple[str, bool]]) -> list[tuple[int, int]]:
    """(samples, correct) of each problem, from pairs of a problem's name and success."""
    counts: dict[str, tuple[int, int]] = {}
    for name, success in samples:
        n, c = counts.get(name, (0, 0))
        counts[name] = (n + 1, c + bool(success))
    return list(counts.values())


def passed_all(codes: Sequence[float]) -> bool:
    """LiveCodeBench's verdict from recorded test codes: all positive (or true); none passes."""
    return all(code > 0 for code in codes)
