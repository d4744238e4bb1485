"""Steps with and without what runs ahead of them (docs/overlap.md).

    python benchmarks/overlap.py [--steps 12] [--rounds 3]

GRPO on bundled tasks in sandboxed environments, a model of the tiny scale's shape with random
weights, 32 rollouts a step, engine `hf`. Three forms take turns:

plain    nothing runs ahead
begun    heads and environments of the next step are begun while a step updates (the default)
off      `train.one_step_off`: the next step's rollouts are drawn while a step updates

Prints the median seconds of a step, and the ratios to `plain` round by round. A second thread gains
only what a core is free for. `begun` ends with the weights of `plain`, which is checked.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import yaml

from lopd_repro.commands.wiring import World, read_prompts, world
from lopd_repro.data.tiny import tiny_task_set, tiny_vocabulary
from lopd_repro.models.backbone import Backbone, copy_model, end_token_ids
from lopd_repro.models.chat import ChatCodec
from lopd_repro.models.tiny_tokenizer import build_tokenizer
from lopd_repro.rollout.divided import CopyEngine
from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.training.evaluate import EvaluationPlan
from lopd_repro.training.loop import LoopSettings, RunSeeds, TrainingRun
from lopd_repro.training.method import Resources, load_method
from lopd_repro.training.step import StepSettings

ROOT = Path(__file__).resolve().parents[1]
FORMS = ("plain", "begun", "off")


def backbone() -> Backbone:
    """Random weights in the shape of `tiny-128`."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = build_tokenizer(tiny_vocabulary(), 4096)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    ).eval()
    return Backbone(model, tokenizer, end_token_ids(model, tokenizer))


def seconds_and_weights(form: str, steps: int, running: World, prompts: Any) -> tuple[float, Any]:
    """Median seconds of a step, and the weights that the run ends with."""
    policy = backbone()
    codec = ChatCodec(policy.tokenizer, policy.eos_ids)
    tasks = tiny_task_set(seed=0, count=64)
    off = form == "off"
    sampled = copy_model(policy.model) if off else policy.model
    engine: Any = HFEngine(sampled, policy.eos_ids, codec.pad_id, 96)
    sampling = SamplingParams(max_turn_tokens=40, max_tail_tokens=256)
    method = load_method(ROOT / "baselines" / "grpo.py")(
        {}, Resources(policy, codec, running.domain(tasks), 0, "random", {}, vars(prompts))
    )
    with tempfile.TemporaryDirectory() as folder:
        run = TrainingRun(
            policy.model,
            method,
            CopyEngine(engine, sampled) if off else engine,
            list(tasks.tasks),
            EvaluationPlan(tuple(tasks.tasks)[:1], 1, 0, sampling),
            LoopSettings(
                steps, 32, 4, validate_every=steps, checkpoint_every=steps, one_step_off=off
            ),
            StepSettings(importance_cap=2.0 if off else 0.0),
            sampling,
            RunSeeds(1, 2, 3),
            Path(folder),
            {},
        )
        times = []
        train_step, begun_by = run._train_step, run._begun_by

        def timed(step: int) -> None:
            start = time.perf_counter()
            train_step(step)
            times.append(time.perf_counter() - start)

        run._train_step = timed  # type: ignore[method-assign]
        if form == "plain":
            run._begun_by = lambda step: None  # type: ignore[method-assign]
        else:
            run._begun_by = begun_by  # type: ignore[method-assign]
        run.run()
    # The first step sets things up, the last has nothing ahead of it.
    return statistics.median(times[1:-1]), policy.model.state_dict()


def main() -> None:
    """Take turns, print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    settings = yaml.safe_load((ROOT / "config/tiny.yaml").read_text())
    prompts = read_prompts(settings["prompts"])
    found: dict[str, list[float]] = {form: [] for form in FORMS}
    with world(settings, prompts) as running:
        for _ in range(args.rounds):
            ends = {}
            for form in FORMS:
                seconds, ends[form] = seconds_and_weights(form, args.steps, running, prompts)
                found[form].append(seconds)
            same = all(torch.equal(v, ends["begun"][k]) for k, v in ends["plain"].items())
            assert same, "begun ahead, a run must end as it does without"
    for form in FORMS:
        ratios = [a / b for a, b in zip(found[form], found["plain"], strict=True)]
        print(
            f"{form}: {statistics.median(found[form]):.3f} s a step, of plain "
            f"{statistics.median(ratios):.2f} ({', '.join(f'{r:.2f}' for r in sorted(ratios))})"
        )


if __name__ == "__main__":
    main()
