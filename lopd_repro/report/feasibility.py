"""The flag 'beta grows without Delta following': a sign that no composer can meet the margin.

The dual variable rises by eta * (m - Delta) a step, so it grows for as long as Delta is below the
margin. That is how the constraint is enforced if Delta then rises; if Delta does not, the weight
of the constraint grows without end and the feasible set is, as far as training can tell, empty.
It is so, too, once the policy has reached its teacher: no context can then be privileged.

The rule, on a window of half the run's steps:
1. beta is higher at the end than at the start,
2. the 95% interval of Delta's mean lies below the margin,
3. Delta is not shown to rise: the 95% interval of its slope reaches down to 0 or below.

Delta of one step is a mean over few trajectories, so a rule that asks beta to rise on every step
would let single lucky batches hide the pattern.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from lopd_repro.stats import Interval, Trend, mean_interval, trend

SMALLEST_WINDOW = 4


@dataclass(frozen=True)
class Window:
    """What the rule looks at, over the steps of one window; Delta in nats.

    `beta_rising` is the share of steps on which beta rose, `below_margin` the share of steps with
    Delta below the margin.
    """

    delta: float
    delta_interval: Interval
    delta_trend: Trend
    beta_first: float
    beta_last: float
    beta_rising: float
    below_margin: float
    flag: bool


def window_length(n_steps: int) -> int:
    """Steps of the window: half the run's, rounded up."""
    return n_steps - n_steps // 2


def judge_window(delta: Sequence[float], beta: Sequence[float], margin: float) -> Window | None:
    """The rule on one window; None with fewer than four steps.

    beta is the value that a step was made with, before the step's own dual update.
    """
    n = len(delta)
    if n < SMALLEST_WINDOW:
        return None
    rises = [later > earlier for earlier, later in itertools.pairwise(beta)]
    mean, slope = mean_interval(delta), trend(delta)
    return Window(
        delta=sum(delta) / n,
        delta_interval=mean,
        delta_trend=slope,
        beta_first=beta[0],
        beta_last=beta[-1],
        beta_rising=sum(rises) / len(rises),
        below_margin=sum(d < margin for d in delta) / n,
        flag=beta[-1] > beta[0] and mean.high < margin and slope.interval.low <= 0.0,
    )
