"""One GRPO step here and in TRL's GRPOTrainer: same model, prompts, batch and lengths.

    pip install trl==1.16.0
    python benchmarks/grpo_step_vs_trl.py BACKBONE_FOLDER SPLITS_FILE [TOKENS]

Single-turn episodes of exactly TOKENS sampled tokens (end tokens do not stop either side); the
default, 27, is what an episode of the tiny tool-use tasks samples on average. 8 prompts x 4
rollouts, temperature 1, one update per batch, clip 0.2, no KL, AdamW, one thread. Rounds of steps
of both sides alternate in one process and each side's first round is not counted; the ratio is
that of the median seconds per step.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from lopd_repro.data.splits import open_split
from lopd_repro.models.backbone import load_backbone
from lopd_repro.models.chat import ChatCodec
from lopd_repro.rollout.domain import Opening, TurnOutcome
from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.episodes import EpisodeRequest, collect
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.training.method import Resources, load_method
from lopd_repro.training.step import PhaseClock, Stepper, StepSettings

LENGTH = int(sys.argv[3]) if len(sys.argv) > 3 else 27
PROMPTS, GROUP, ROUNDS, STEPS = 8, 4, 6, 5


def reward(text: str) -> float:
    """Any varying, cheap reward: share of letters among the characters."""
    return sum(c.isalpha() for c in text) / max(1, len(text))


class SingleTurn:
    """Domain of one turn per episode."""

    name = "single_turn"

    def __init__(self, openings: dict[str, Opening]) -> None:
        self.openings = openings

    def opening(self, task_id: str) -> Opening:
        """The prompt."""
        return self.openings[task_id]

    def task_text(self, task_id: str) -> str:
        """The prompt's text."""
        return self.openings[task_id].user

    def begin(self, requests: Sequence[tuple[str, int]]) -> list[int]:
        """Nothing to start."""
        return list(range(len(requests)))

    def turn(self, turns: Sequence[tuple[int, str]]) -> list[TurnOutcome]:
        """Score the text."""
        return [TurnOutcome("user", "", True, reward(text)) for _, text in turns]

    def cut(self, handles: Sequence[int]) -> list[TurnOutcome]:
        """Never needed: the turn bound comes first."""
        assert not handles
        return []

    def trace(self, records: Sequence[dict[str, Any]]) -> str:
        """No trace."""
        return ""


class Ours:
    """Steps of this project's GRPO."""

    def __init__(self, folder: str, openings: dict[str, Opening]) -> None:
        backbone = load_backbone(folder)
        codec = ChatCodec(backbone.tokenizer, backbone.eos_ids)
        domain = SingleTurn(openings)
        resources = Resources(backbone, codec, domain, 0, folder)
        self.engine = HFEngine(backbone.model, (), codec.pad_id, PROMPTS * GROUP)
        self.codec, self.domain, self.tasks = codec, domain, list(openings)
        self.clock = PhaseClock()
        method = load_method("baselines/grpo.py")({}, resources)
        self.stepper = Stepper(backbone.model, method, StepSettings(lr=1e-6, clip=1.0), self.clock)
        self.sampling = SamplingParams(max_turn_tokens=LENGTH, max_tail_tokens=LENGTH + 1)
        self.done = 0

    def steps(self, count: int) -> list[float]:
        """Seconds of `count` steps."""
        spent = []
        for _ in range(count):
            start = time.perf_counter()
            first = self.done * PROMPTS
            tasks = [self.tasks[(first + i) % len(self.tasks)] for i in range(PROMPTS)]
            requests = [
                EpisodeRequest(task, i, self.done * 1000 + i * GROUP + j, 0)
                for i, task in enumerate(tasks)
                for j in range(GROUP)
            ]
            with self.clock.phase("rollout"):
                trajectories = collect(
                    self.engine, self.codec, self.domain, requests, self.sampling
                )
            assert all(t.n_sampled == LENGTH for t in trajectories)
            self.stepper.step(trajectories)
            self.done += 1
            spent.append(time.perf_counter() - start)
        return spent


class Theirs:
    """Steps of TRL's GRPOTrainer, timed between its step callbacks."""

    def __init__(self, folder: str, openings: dict[str, Opening], scratch: str) -> None:
        from datasets import Dataset
        from transformers import TrainerCallback
        from trl import GRPOConfig, GRPOTrainer

        backbone = load_backbone(folder)
        codec = ChatCodec(backbone.tokenizer, backbone.eos_ids)
        texts = [{"prompt": codec.render(o.messages(), list(o.tools))} for o in openings.values()]
        config = GRPOConfig(
            output_dir=scratch,
            per_device_train_batch_size=PROMPTS * GROUP,
            num_generations=GROUP,
            max_completion_length=LENGTH,
            temperature=1.0,
            learning_rate=1e-6,
            beta=0.0,
            epsilon=0.2,
            num_iterations=1,
            max_grad_norm=1.0,
            loss_type="bnpo",
            max_steps=STEPS,
            report_to=[],
            logging_steps=10**6,
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
            generation_kwargs={"min_new_tokens": LENGTH},
            dataloader_pin_memory=False,
            mask_truncated_completions=False,
        )
        self.spent: list[float] = []
        spent = self.spent

        class Clock(TrainerCallback):
            def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
                self.start = time.perf_counter()

            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                spent.append(time.perf_counter() - self.start)

        self.lengths: list[int] = []
        lengths = self.lengths

        def score(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
            lengths.extend(len(ids) for ids in completion_ids)
            return [reward(text) for text in completions]

        self.make = lambda: GRPOTrainer(
            model=backbone.model,
            reward_funcs=score,
            args=config,
            train_dataset=Dataset.from_list(texts),
            processing_class=backbone.tokenizer,
            callbacks=[Clock()],
        )

    def steps(self, count: int) -> list[float]:
        """Seconds of `count` steps; generation, scoring and update, not the trainer's start."""
        assert count == STEPS
        self.spent.clear()
        self.make().train()
        assert set(self.lengths) == {LENGTH}, f"TRL sampled lengths {sorted(set(self.lengths))}"
        return list(self.spent)


def main(folder: str, splits: str) -> None:
    """Alternate rounds, print medians and the ratio."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    tasks = open_split(splits, "train", "training")
    openings = {
        t.task_id: Opening(
            tasks.environments[t.env_id].introduction, t.task, tasks.environments[t.env_id].tools
        )
        for t in tasks.tasks.values()
    }
    with tempfile.TemporaryDirectory() as scratch:
        ours, theirs = Ours(folder, openings), Theirs(folder, openings, scratch)
        mine: list[float] = []
        trl: list[float] = []
        for number in range(ROUNDS):
            one, other = ours.steps(STEPS), theirs.steps(STEPS)
            if number:
                mine += one
                trl += other
    a, b = statistics.median(mine), statistics.median(trl)
    print(f"ours: {a:.3f} s/step ({min(mine):.3f} to {max(mine):.3f})")
    print(f"TRL:  {b:.3f} s/step ({min(trl):.3f} to {max(trl):.3f})")
    print(f"TRL / ours: {b / a:.2f}")
    total = sum(ours.clock.seconds.values())
    for phase, seconds in sorted(ours.clock.seconds.items(), key=lambda item: -item[1]):
        print(f"  ours, {phase}: {seconds / total:.0%}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
