from __future__ import annotations

from typing import Any

import pytest
import torch
from small import make_model

from lopd_repro.errors import UserError
from lopd_repro.training.method import TeacherSpec
from lopd_repro.training.teachers import Teacher, assert_plain_forward


def move(model: Any, by: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by)


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def with_adapter(model: Any) -> Any:
    from peft import LoraConfig

    model.add_adapter(LoraConfig(r=2, target_modules=["q_proj"]), adapter_name="own")
    return model


def test_a_frozen_teacher_stays_at_the_start() -> None:
    policy = make_model()
    start = weights(policy)
    teacher = Teacher(TeacherSpec("frozen"), policy)
    move(policy, 0.1)
    teacher.update()
    assert same(weights(teacher.model), start) and not same(weights(policy), start)
    assert not any(p.requires_grad for p in teacher.model.parameters())
    assert teacher.state_dict() == {}
    given = make_model(seed=5)
    assert Teacher(TeacherSpec("frozen"), policy, given).model is given


def test_the_current_teacher_is_the_policy_and_none_is_none() -> None:
    policy = make_model()
    assert Teacher(TeacherSpec("current"), policy).model is policy
    assert Teacher(TeacherSpec(), policy).model is None


def test_the_ema_follows_effective_weights_in_float32() -> None:
    policy = make_model(dtype=torch.bfloat16)
    teacher = Teacher(TeacherSpec("ema", 0.01), policy)
    assert all(value.dtype == torch.float32 for value in teacher.state_dict().values())
    name = "model.norm.weight"
    expected = weights(policy)[name].double()
    for _ in range(10):
        move(policy, 0.01)  # bfloat16 near 1 has steps of 0.0078: it rounds, the average must not
        now = weights(policy)[name].double()
        teacher.update()
        expected = 0.99 * expected + 0.01 * now
    average = teacher.state_dict()[name]
    torch.testing.assert_close(average.double(), expected, rtol=0, atol=1e-6)
    assert not torch.equal(average, average.to(torch.bfloat16).float())
    assert torch.equal(weights(teacher.model)[name], average.to(torch.bfloat16))


def test_an_ema_is_saved_and_restored() -> None:
    policy = make_model()
    teacher = Teacher(TeacherSpec("ema", 0.5), policy)
    move(policy, 1.0)
    teacher.update()
    saved = {name: value.clone() for name, value in teacher.state_dict().items()}
    again = Teacher(TeacherSpec("ema", 0.5), make_model(seed=3))
    again.load_state_dict(saved)
    assert same(weights(again.model), weights(teacher.model))
    move(policy, 1.0)
    teacher.update()
    assert not same(saved, teacher.state_dict()), "the state must be the teacher's own"


def test_an_ema_of_a_policy_with_an_adapter_is_refused() -> None:
    with pytest.raises(UserError, match="adapter"):
        Teacher(TeacherSpec("ema", 0.05), with_adapter(make_model()))


def test_a_teacher_pass_with_an_adapter_or_dropout_is_refused() -> None:
    model = with_adapter(make_model())
    with pytest.raises(RuntimeError, match="adapter active"):
        assert_plain_forward(model)
    model.disable_adapters()
    assert_plain_forward(model)

    plain = make_model().train()
    assert_plain_forward(plain)  # without dropout the mode makes no difference
    plain.model.layers[0].self_attn.attention_dropout = 0.1
    with pytest.raises(RuntimeError, match="dropout"):
        assert_plain_forward(plain)
    assert_plain_forward(plain.eval())
    module = torch.nn.Sequential(torch.nn.Dropout(0.1))
    with pytest.raises(RuntimeError, match="dropout"):
        assert_plain_forward(module)


def test_what_a_teacher_spec_refuses() -> None:
    for bad in (("best", 0.0), ("ema", 0.0), ("ema", 1.5)):
        with pytest.raises(UserError, match="teacher"):
            TeacherSpec(*bad)
