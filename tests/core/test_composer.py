from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from small import ScriptDomain, codec, full_logits, make_model, tokenizer
from small_lopd import RETRIEVED, SHAPE, bank, make_composer

from lopd_repro.errors import UserError
from lopd_repro.files import read_json, write_json
from lopd_repro.lopd.cold_start import ColdStartSettings, cold_start, trajectory_nll
from lopd_repro.lopd.composer import Composer, ComposerSettings
from lopd_repro.lopd.compressor import Compressor
from lopd_repro.lopd.latents import Framing, LatentSource
from lopd_repro.lopd.random_latents import RandomLatents
from lopd_repro.lopd.saved import composer_settings, save_composer
from lopd_repro.models.backbone import freeze
from lopd_repro.training.teachers import assert_plain_forward

PAIRS = [("task t0", "1. do"), ("task t1", "1. do more and more and more"), ("x", "y")]
IDS = [5, 9, 33, 12, 40]


def frozen(**options: Any) -> Any:
    return freeze(make_model(**options))


def test_the_adapter_is_off_outside_encoding() -> None:
    model = frozen()
    before = full_logits(model, IDS)
    composer = make_composer(model)
    assert torch.equal(full_logits(model, IDS), before)
    assert_plain_forward(model)
    latents = composer.encode(PAIRS)
    assert latents.shape == (3, SHAPE.n_latents, 32)
    assert torch.equal(full_logits(model, IDS), before)
    assert_plain_forward(model)
    with torch.no_grad():
        for parameter in composer.lora_parameters():
            parameter.mul_(0.0)
    assert not torch.allclose(composer.encode(PAIRS), latents), "the adapter must do something"


def test_the_adapter_is_off_after_an_encoding_that_fails() -> None:
    model = frozen()
    composer = make_composer(model)
    before = full_logits(model, IDS)
    normed = model.base_model.norm.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        composer.encode(PAIRS)
    normed.remove()
    assert torch.equal(full_logits(model, IDS), before)


def test_composers_on_one_backbone_do_not_mix() -> None:
    alone = make_composer(frozen(), seed=3).encode(PAIRS)
    model = frozen()
    first, second = make_composer(model, 3, "start"), make_composer(model, 4, "composer")
    for _ in range(2):
        torch.testing.assert_close(first.encode(PAIRS), alone)
        assert not torch.allclose(second.encode(PAIRS), alone)
    assert not set(map(id, first.parameters())) & set(map(id, second.parameters()))
    assert first.state_dict().keys() == second.state_dict().keys()


def test_gradients_reach_the_whole_composer_and_nothing_else() -> None:
    model = frozen()
    start = make_composer(model, 1, "start")
    start.train_mode(False)
    composer = make_composer(model, 2, "composer")
    latents = composer.encode(PAIRS)
    start.encode(PAIRS)  # another composer's encoding in between changes nothing
    torch.autograd.backward(latents.square().sum() + latents[0, 0, 0])
    for parameter in composer.parameters():
        assert parameter.grad is not None and float(parameter.grad.abs().max()) > 0
    own = {id(p) for p in composer.parameters()}
    assert all(
        p.grad is None for p in [*model.parameters(), *start.parameters()] if id(p) not in own
    )


def test_what_is_frozen_stays_frozen_through_an_encoding() -> None:
    model = frozen()
    composer = make_composer(model)
    composer.train_mode(False)
    assert not composer.encode(PAIRS).requires_grad
    assert not any(p.requires_grad for p in composer.parameters())
    composer.train_mode(True)
    assert composer.encode(PAIRS).requires_grad
    assert all(p.requires_grad for p in composer.parameters())


def test_latents_do_not_depend_on_the_batch() -> None:
    composer = make_composer(frozen())
    together = composer.encode(PAIRS)
    for i, pair in enumerate(PAIRS):
        torch.testing.assert_close(composer.encode([pair])[0], together[i], atol=2e-5, rtol=1e-4)


def test_the_compressor_ignores_masked_positions() -> None:
    torch.manual_seed(0)
    compressor = Compressor(16, 2, 8, 3, depth=2).double()
    states = torch.randn(2, 5, 16, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    out = compressor(states, mask)
    torch.testing.assert_close(out[1:], compressor(states[1:, :3]), atol=1e-6, rtol=0)
    torch.testing.assert_close(out[:1], compressor(states[:1]), atol=1e-6, rtol=0)


def test_latents_start_at_the_asked_scale() -> None:
    model = frozen()
    rms = float(model.get_input_embeddings().weight.square().mean().sqrt())
    for scale, expected in (("unit", 1.0), ("embedding_rms", rms)):
        shape = dataclasses.replace(SHAPE, latent_scale=scale)
        composer = Composer(frozen(), tokenizer(), shape, 0, "composer")
        size = composer.encode(PAIRS).detach().square().mean().sqrt()
        assert float(size) == pytest.approx(expected, rel=1e-3)
    for bad in ({"latent_scale": "big"}, {"n_latents": 0}, {"task_text": "masked"}):
        with pytest.raises(UserError, match="composer"):
            ComposerSettings(**bad)


def test_a_saved_composer_is_the_same_composer(tmp_path: Path) -> None:
    first = make_composer(frozen(), 3, "one")
    save_composer(first, tmp_path / "c.safetensors")
    shape = composer_settings(tmp_path / "c.safetensors")
    assert shape == SHAPE
    second = Composer(frozen(), tokenizer(), shape, 9, "two")
    assert not torch.equal(second.encode(PAIRS), first.encode(PAIRS))
    second.load(tmp_path / "c.safetensors")
    assert torch.equal(second.encode(PAIRS), first.encode(PAIRS))
    other = Composer(frozen(), tokenizer(), dataclasses.replace(shape, n_latents=4), 0, "three")
    with pytest.raises(UserError, match="do not fit"):
        other.load(tmp_path / "c.safetensors")


def test_a_hidden_task_changes_no_latents(tmp_path: Path) -> None:
    hidden = dataclasses.replace(SHAPE, task_text="hidden")
    pairs = [("task t0", "1. do"), ("quite another task", "1. do"), ("task t0", "2. do more")]
    saved = make_composer(frozen(), shape=hidden)
    first, second, third = saved.encode(pairs)
    assert torch.equal(first, second) and not torch.allclose(first, third)
    shown = make_composer(frozen())
    left, right, _ = shown.encode(pairs)
    assert not torch.allclose(left, right) and not torch.allclose(left, first)
    torch.testing.assert_close(shown.encode([("", "1. do")])[0], first, atol=2e-5, rtol=1e-4)
    # Cold start and method read it from the saved shape; one of before this setting shows tasks.
    save_composer(saved, tmp_path / "c.safetensors")
    assert composer_settings(tmp_path / "c.safetensors") == hidden
    old = read_json(tmp_path / "c.json")
    del old["task_text"]
    write_json(tmp_path / "c.json", old)
    assert composer_settings(tmp_path / "c.safetensors") == SHAPE


def test_the_seed_fixes_a_new_composer_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = Composer(frozen(), tokenizer(), SHAPE, 1, "composer")
    torch.manual_seed(5)
    second = Composer(frozen(), tokenizer(), SHAPE, 1, "composer")
    third = Composer(frozen(), tokenizer(), SHAPE, 2, "composer")
    left, right, other = (c.state_dict() for c in (first, second, third))
    assert all(torch.equal(left[k], right[k]) for k in left)
    assert not torch.equal(left["compressor.latents"], other["compressor.latents"])
    torch.manual_seed(5)
    model = frozen(seed=8)
    torch.manual_seed(5)
    Composer(model, tokenizer(), SHAPE, 1, "composer")
    assert torch.equal(torch.rand(1), expected)


BANK = {e.experience_id: e for e in bank()}


def make_source(model: Any, **options: Any) -> LatentSource:
    return LatentSource(
        make_composer(model, **options),
        BANK,
        RETRIEVED,
        ScriptDomain().task_text,
        Framing("<", ">"),
    )


def test_latents_are_joined_in_rank_order_and_encoded_once() -> None:
    source = make_source(frozen())
    calls: list[int] = []
    encode = source.composer.encode
    source.composer.encode = lambda pairs: calls.append(len(pairs)) or encode(pairs)  # type: ignore[func-returns-value, method-assign]
    first, again, single, none = source.latents(["t0", "t0", "t4", "t5"])
    assert calls == [3], "two experiences of t0 once, one of t4"
    assert none is None and first is not None and again is not None and single is not None
    assert torch.equal(first, again) and first.shape == (6, 32) and single.shape == (3, 32)
    for place, name in enumerate(RETRIEVED["t0"]):
        (expected,) = encode([("task t0", BANK[name].trace)])
        torch.testing.assert_close(first[place * 3 :][:3], expected, atol=2e-5, rtol=1e-4)
    context = source.contexts(["t0"])[0]
    assert context is not None and (context.before, context.after) == ("<", ">")
    assert source.has("t4") and not source.has("t5") and source.latents(["t5"]) == [None]


def test_cold_start_lowers_the_loss_by_training_encoder_and_compressor() -> None:
    model, coder, domain = frozen(), codec(), ScriptDomain()
    source = make_source(model)
    before = {k: v.clone() for k, v in source.composer.state_dict().items()}
    base = full_logits(model, IDS)
    rows: list[dict[str, float]] = []
    settings = ColdStartSettings(steps=25, batch=4, lr=1e-2)
    cold_start(source, model, coder, domain, bank(), settings, 0, rows.append)
    assert [row["step"] for row in rows] == list(range(1, 26))
    assert rows[-1]["nll"] < 0.8 * rows[0]["nll"]
    after = source.composer.state_dict()
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    # Every part moves: queries, projections, both adapter factors of every layer.
    assert moved == set(after)
    assert torch.equal(full_logits(model, IDS), base)
    assert not any(p.requires_grad for p in source.composer.parameters())
    empty = LatentSource(source.composer, BANK, {}, domain.task_text, Framing("<", ">"))
    with pytest.raises(UserError, match="no bank trajectory has retrieved experiences"):
        cold_start(empty, model, coder, domain, bank(), settings, 0, rows.append)


@torch.no_grad()
def test_the_cold_start_loss_is_the_mean_of_trajectory_means() -> None:
    model, coder, domain = frozen(), codec(), ScriptDomain()
    source = make_source(model)
    chosen = bank()[:3]
    expected = []
    for entry in chosen:
        (latents,) = source.latents([entry.task_id])
        assert latents is not None
        opening = domain.opening(entry.task_id)
        text = coder.render(
            [
                {"role": "system", "content": opening.system},
                {"role": "user", "content": opening.user + "<|S|>"},
            ],
            None,
        )
        left, right = text.split("|S|")
        table = model.get_input_embeddings().weight
        before, after = coder.encode(left), [*coder.encode(right), *entry.tail]
        embeds = torch.cat([table[before], latents, table[after]])
        logits = model(inputs_embeds=embeds[None], use_cache=False).logits[0].log_softmax(-1)
        start = len(embeds) - len(entry.tail)
        nll = [-float(logits[start + j - 1, token]) for j, token in enumerate(entry.tail)]
        expected.append(sum(nll) / len(nll))
    found = trajectory_nll(source, model, coder, domain, chosen)
    assert float(found) == pytest.approx(sum(expected) / 3, rel=1e-5)
    assert len({len(e.tail) for e in chosen}) > 1


@torch.no_grad()
def test_random_latents_keep_number_and_norms_and_nothing_else() -> None:
    source = make_source(frozen())
    random = RandomLatents(source, seed=1)
    tasks = ["t0", "t1", "t4", "t5"]
    drawn, composed = random.latents(tasks), source.latents(tasks)
    assert drawn[3] is None and not random.has("t5")
    for mine, theirs in zip(drawn[:3], composed[:3], strict=True):
        assert mine is not None and theirs is not None and mine.shape == theirs.shape
        torch.testing.assert_close(mine.norm(dim=-1), theirs.norm(dim=-1), atol=1e-4, rtol=1e-4)
        assert mine.dtype == theirs.dtype
    assert drawn[0] is not None and drawn[1] is not None and composed[0] is not None
    # Directions of 6 tokens in 32 dimensions: cosines between independent ones are small.
    for other in (drawn[1], composed[0]):
        cosine = torch.nn.functional.cosine_similarity(drawn[0], other, dim=-1)
        assert float(cosine.mean().abs()) < 0.35
    # Kept, and the same in any batch and after a fresh start; another seed draws anew.
    (again,) = RandomLatents(make_source(frozen()), seed=1).latents(["t0"])
    other_seed = RandomLatents(source, seed=2).latents(["t0"])[0]
    assert again is not None and torch.equal(again, drawn[0]) and other_seed is not None
    assert not torch.allclose(other_seed, drawn[0])
    (context,) = random.contexts(["t0"])
    assert context is not None and torch.equal(context.latents, drawn[0])
    assert (context.before, context.after) == ("<", ">")
