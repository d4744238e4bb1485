"""Running sums of probabilities in integers, as they are drawn from on a GPU."""

import torch

from lopd_repro.rollout import sampling
from lopd_repro.rollout.engine import SamplingParams


def probabilities() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(4, 20_000, generator=generator, dtype=torch.float64).mul(4).softmax(-1)
    drawn[:, ::3] = 0.0
    return drawn


def test_they_are_the_sums_and_stand_still_over_zeros() -> None:
    given = probabilities()
    found = sampling.integer_sums(given)
    # 20,000 roundings down by at most 2^-60 each.
    assert (found - given.cumsum(-1)).abs().max() < 1e-13
    step = found.diff(dim=-1)
    assert bool((step >= 0).all())
    assert bool((step[given[:, 1:] == 0] == 0).all())


def test_tokens_drawn_from_either_are_the_same(monkeypatch) -> None:
    logits = probabilities().float().log()
    uniforms = torch.tensor([0.0, 0.3, 0.8, 1 - 2**-24])
    for params in (SamplingParams(), SamplingParams(temperature=0.7, top_p=0.95, top_k=20)):
        floats = sampling.draw(logits, params, uniforms)
        with monkeypatch.context() as patched:
            patched.setattr(sampling, "running_sums", sampling.integer_sums)
            integers = sampling.draw(logits, params, uniforms)
        assert torch.equal(floats[0], integers[0]) and torch.equal(floats[1], integers[1])
        assert torch.isfinite(integers[1]).all()
