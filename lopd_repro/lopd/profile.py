"""Where the divergence between student and teacher sits: by position and by outcome.

Token means of KL(student || teacher) over a whole step: `kl_q1` .. `kl_q4` by quarter of the
trajectory's supervised tokens (token i of n, from 0, is in quarter floor(4 i / n)), `kl_success`
for trajectories with full reward and `kl_failure` for those below it; one without a reward is in
neither. Only for the log: nothing here has a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lopd_repro.rollout.episodes import Trajectory

QUARTERS = ("kl_q1", "kl_q2", "kl_q3", "kl_q4")
OUTCOMES = ("kl_success", "kl_failure")
FULL_REWARD = 1.0


class DivergenceProfile:
    """Token counts of a step's buckets; micro-batches add up to the step's means."""

    def __init__(self, trajectories: Sequence[Trajectory] = ()) -> None:
        self._tokens = dict.fromkeys((*QUARTERS, *OUTCOMES), 0)
        for trajectory in trajectories:
            n = trajectory.n_sampled
            for quarter, name in enumerate(QUARTERS):
                self._tokens[name] += _ceil(quarter * n + n, 4) - _ceil(quarter * n, 4)
            if trajectory.reward == FULL_REWARD:
                self._tokens["kl_success"] += n
            elif trajectory.reward < FULL_REWARD:
                self._tokens["kl_failure"] += n

    @torch.no_grad()
    def shares(
        self, kl: torch.Tensor, row: torch.Tensor, rewards: torch.Tensor
    ) -> dict[str, float]:
        """A micro-batch's shares of the step's means; a bucket without tokens is left out.

        kl `[N]`: divergence per token, in nats; row `[N]`: its trajectory, tokens of a trajectory
        together and in order; rewards `[B]`.
        """
        counts = torch.bincount(row, minlength=len(rewards))
        first = counts.cumsum(0) - counts
        position = torch.arange(len(row), device=row.device) - first[row]
        quarter = 4 * position // counts[row]
        reward = rewards[row]
        members = [quarter == q for q in range(len(QUARTERS))]
        members += [reward == FULL_REWARD, reward < FULL_REWARD]
        return {
            name: float(kl[member].sum()) / n
            for (name, n), member in zip(self._tokens.items(), members, strict=True)
            if n
        }


def _ceil(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
