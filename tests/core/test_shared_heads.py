"""A group's shared head is run once: same scores, same gradients, same sampled episodes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small import KINDS, make_model, tokenizer, trajectory

from lopd_repro.models.chat import Head
from lopd_repro.models.padding import distinct
from lopd_repro.rollout.engine import Prompt, SamplingParams, Turn
from lopd_repro.rollout.heads import BuiltHead
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.training import scoring
from lopd_repro.training.scoring import sampled_tokens, score

PAD = int(tokenizer().pad_token_id)
HEADS = [(5, 6, 7, 8), (9, 10)]
TURNS = [
    [("ab", True), ("\nc", False), ("Task Completed", True)],
    [("d", True)],
    [("long " * 12, True), ("\n", False), ("x", True)],
    [("\n", False), ("y", True)],
]
# Rows 0 and 2 share the first head, 1 and 3 the second.
CASES = [trajectory(f"t{i}", HEADS[i % 2], turns) for i, turns in enumerate(TURNS)]


def _scores_and_gradients(
    model: Any, latents: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch, shared: bool
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    # A fresh BuiltHead for every row, as the training step makes them.
    built = [BuiltHead(Head(HEADS[i % 2], (1, 2)), latents[i % 2]) for i in range(len(CASES))]
    with monkeypatch.context() as patch:
        if not shared:
            patch.setattr(scoring, "fits_window", lambda model, length: False)
        scores = score(model, built, CASES, PAD)
    tokens, _ = sampled_tokens(CASES)
    logp = scores.logp(tokens)
    wanted = [*model.parameters(), *latents]
    weights = torch.linspace(0.5, 2.0, len(logp), dtype=logp.dtype)
    return logp.detach(), list(torch.autograd.grad((logp * weights).sum(), wanted))


@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_gradients_are_those_of_whole_sequences(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(kind, dtype=torch.float64)
    width = model.config.hidden_size
    latents = [torch.randn(1, width, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    whole, whole_gradients = _scores_and_gradients(model, latents, monkeypatch, shared=False)
    shared, shared_gradients = _scores_and_gradients(model, latents, monkeypatch, shared=True)
    # transformers' normalisation layers compute in float32 whatever the model's type.
    torch.testing.assert_close(shared, whole, rtol=1e-5, atol=1e-6)
    for one, other in zip(shared_gradients, whole_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5 * float(other.abs().max() + 1))
    assert all(float(gradient.abs().max()) > 0 for gradient in whole_gradients[-2:])


def test_a_head_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    seen: list[int] = []
    forward = model.base_model.forward

    def counting(*args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("inputs_embeds", kwargs.get("input_ids"))
        seen.append(int(given.shape[0]))
        return forward(*args, **kwargs)

    monkeypatch.setattr(model.base_model, "forward", counting)
    score(model, [BuiltHead(Head(HEADS[i % 2])) for i in range(4)], CASES, PAD)
    assert seen == [2, 4]
    seen.clear()
    score(model, [BuiltHead(Head(HEADS[i % 2])) for i in range(3)], CASES[:3], PAD)
    assert seen == [3]


def test_other_latents_are_another_head() -> None:
    same, other = torch.zeros(1, 4), torch.zeros(1, 4)
    keys = [
        scoring.head_key(BuiltHead(Head((1, 2), (0, 1)), latents))
        for latents in (same, other, same, None)
    ]
    assert distinct(keys) == ([0, 1, 3], [0, 1, 0, 2])


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_samples_as_its_members_do_alone(kind: str) -> None:
    engine = HFEngine(make_model(kind), (999_999,), PAD)
    sampling = SamplingParams(max_turn_tokens=6, max_tail_tokens=7)

    def run(prompts: list[Prompt]) -> list[list[int]]:
        sampled: dict[int, list[int]] = {}

        def on_turns(turns: list[tuple[int, Turn]]) -> list[None]:
            sampled.update((i, turn.ids) for i, turn in turns)
            return [None] * len(turns)

        engine.run(prompts, sampling, on_turns)  # type: ignore[arg-type]
        return [sampled[i] for i in range(len(prompts))]

    group = [Prompt(HEADS[i % 2], seed) for i, seed in enumerate((1, 2, 3, 4, 5, 6))]
    assert run(group) == [run([prompt])[0] for prompt in group]
    assert len({tuple(ids) for ids in run(group)}) > 1
