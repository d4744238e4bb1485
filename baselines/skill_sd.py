"""Skill-SD: GRPO with a small self-distillation term from a teacher that reads a skill.

As in the paper's appendix B.1 and in Skill-SD's own paper (arXiv 2604.10674): the teacher is the
current policy with one skill of the task (what works, what to avoid, a workflow) at the end of
its first user message; the policy itself never sees one. Skills are written from each step's
finished rollouts, failures included, and join the bank of their own task; UCB1 with c = sqrt(2)
chooses, unused skills first. Loss: PPO clip 0.2/0.28 plus 0.001 times the importance-weighted
sampled-token reverse KL, rho * (exp(-ell) - 1 + ell) with ell = log pS - log pT.

Departures. There is no public code; what the papers leave open is fixed here as follows. A group
shares one skill, one use of it counts once with the group's mean reward, and N counts the uses of
the task's skills. rho carries a gradient (`detach_rho: false`), as in the one public
re-implementation: only then is the term the reverse KL on average. A bank that starts empty would
never give a task a skill where no task is met twice, as with the paper's 400 of 2,349 tasks, so
it starts with skills from rollouts of the base model (`start: base_rollouts`; `empty` is the
other choice). `writer` is an extractor of ours or a model behind an endpoint; the paper uses a
model. Groups of one have no advantage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch

from lopd_repro.errors import UserError
from lopd_repro.experience.endpoint import ChatEndpoint, EndpointSettings
from lopd_repro.experience.skills import (
    PARTS,
    OfflineWriter,
    SkillBank,
    SkillWriter,
    attempts_of,
    read_skills,
)
from lopd_repro.experience.skills_endpoint import EndpointWriter
from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.rollout.heads import PLACES, Context, TextContext
from lopd_repro.training.advantages import group_advantages
from lopd_repro.training.losses import aggregate, log_ratio, ppo_clip, privilege, sampled_reverse_kl
from lopd_repro.training.method import (
    Batch,
    Loss,
    Method,
    Preparation,
    Resources,
    TeacherSpec,
    choice,
)
from lopd_repro.training.text_contexts import TextContexts


class SkillSD(Method):
    """Policy gradient, and distillation from the policy that reads a skill."""

    name = "skill_sd"
    label = "Skill-SD"
    defaults: ClassVar[dict[str, Any]] = {
        "teacher": "current",
        "weight": 0.001,
        "detach_rho": False,
        "eps_low": 0.2,
        "eps_high": 0.28,
        "std_eps": 1e-6,
        "aggregation": "token_mean",
        "ucb_c": math.sqrt(2.0),
        "start": "base_rollouts",
        "writer": "offline",
        "parts": list(PARTS),
        "endpoint_url": "",
        "endpoint_model": "",
        "endpoint_key_env": "",
        "place": "end_of_first_user",
        "context_overflow": "error",
        "context_limit": 0,
    }

    def __init__(self, settings: dict[str, Any], resources: Resources) -> None:
        super().__init__(settings, resources)
        s = self.settings
        modes = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum")
        choice(self.name, "aggregation", s["aggregation"], modes)
        choice(self.name, "teacher", s["teacher"], ("current", "frozen"))
        choice(self.name, "start", s["start"], ("base_rollouts", "empty"))
        choice(self.name, "writer", s["writer"], ("offline", "endpoint"))
        choice(self.name, "place", s["place"], PLACES)
        for part in s["parts"]:
            choice(self.name, "parts", part, PARTS)
        self._texts = TextContexts(
            self.name, resources, s["context_overflow"], int(s["context_limit"])
        )
        self._writer = self._make_writer()
        self.bank = SkillBank(s["ucb_c"])
        if s["start"] == "base_rollouts":
            if "skills" not in resources.files:
                raise UserError(f"method {self.name}: it needs the input file skills")
            for task_id, skill in read_skills(resources.files["skills"]):
                self.bank.add(task_id, skill)
        self._groups: list[tuple[list[Trajectory], int | None]] = []

    @property
    def teacher(self) -> TeacherSpec:
        """The policy as it is, or the base model."""
        return TeacherSpec(self.settings["teacher"])

    def prepare(self, trajectories: Sequence[Trajectory]) -> Preparation:
        """Advantages, and one skill for each group."""
        groups: dict[int, list[Trajectory]] = {}
        for t in trajectories:
            groups.setdefault(t.group, []).append(t)
        chosen = {g: self.bank.choose(members[0].task_id) for g, members in groups.items()}
        self._groups = [(members, chosen[g]) for g, members in groups.items()]
        plan = self._texts.plan(
            trajectories, [self._context(t, chosen[t.group]) for t in trajectories]
        )
        advantages = group_advantages(
            torch.tensor([t.reward for t in trajectories]),
            torch.tensor([t.group for t in trajectories]),
            eps=self.settings["std_eps"],
        )
        plan.extra["advantage"] = advantages.advantage
        plan.metrics["missing_rewards"] = float(advantages.n_missing)
        plan.metrics["constant_groups"] = float(advantages.n_constant_groups)
        return plan

    def contexts(self, trajectories: Sequence[Trajectory]) -> list[Context]:
        """The chosen skills."""
        return self._texts.of(trajectories)

    def loss(self, batch: Batch) -> Loss:
        """Clipped policy loss, plus the weighted distillation term where there is a skill."""
        s = self.settings
        n_rows = len(batch.trajectories)
        advantage = batch.extra["advantage"][batch.row]
        distilled, theirs = batch.distilled, None
        if batch.teacher is not None:
            found = batch.teacher.logp(batch.tokens[distilled])
            theirs = found.new_zeros(len(distilled))
            theirs[distilled] = found

        def losses(logp: torch.Tensor, part: slice) -> torch.Tensor:
            # One update per batch: the policy that sampled is the policy before the update.
            old = logp.detach()
            policy = ppo_clip(log_ratio(logp, old), advantage[part], s["eps_low"], s["eps_high"])
            if theirs is None:
                return policy.unsqueeze(-1)
            kl = sampled_reverse_kl(logp, theirs[part], old, detach_rho=s["detach_rho"])
            return torch.stack([policy, kl], dim=-1)

        def mean_kl(values: torch.Tensor) -> torch.Tensor:
            return aggregate(
                batch.weighted(values[distilled], distilled),
                batch.row[distilled],
                n_rows,
                s["aggregation"],
                totals=batch.distilled_totals,
            )

        def mean(values: torch.Tensor) -> torch.Tensor:
            policy = batch.weighted(values[:, 0])
            value = aggregate(policy, batch.row, n_rows, s["aggregation"], totals=batch.totals)
            return value if theirs is None else value + s["weight"] * mean_kl(values[:, 1])

        value, logp = batch.student.mean_loss(batch.tokens, losses, mean)
        if theirs is None:
            return Loss(value)
        reverse_kl = mean_kl(sampled_reverse_kl(logp, theirs, logp))
        gap = privilege(theirs[distilled], logp[distilled]).sum() / batch.distilled_totals.tokens
        return Loss(value, {"divergence": float(reverse_kl), "privilege": float(gap)})

    def after_step(self, metrics: dict[str, float]) -> dict[str, float]:
        """Credit the skills that were used, then add those that this step's rollouts give."""
        added = 0
        for members, index in self._groups:
            task_id = members[0].task_id
            rewards = [t.reward for t in members if not math.isnan(t.reward)]
            if index is not None and rewards:
                self.bank.credit(task_id, index, sum(rewards) / len(rewards))
            domain = self.resources.domain
            task, attempts = domain.task_text(task_id), attempts_of(members, domain)
            skill = self.resources.ranks.once(partial(self._writer.write, task, attempts))
            added += skill is not None and self.bank.add(task_id, skill)
        self._groups = []
        return {"skills": float(len(self.bank)), "skills_added": float(added)}

    def state_dict(self) -> dict[str, Any]:
        """Skills, counts and rewards."""
        return {"bank": self.bank.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.bank.load_state_dict(state["bank"])

    def _make_writer(self) -> SkillWriter:
        s = self.settings
        if s["writer"] == "offline":
            return OfflineWriter()
        endpoint = EndpointSettings(s["endpoint_url"], s["endpoint_model"], s["endpoint_key_env"])
        return EndpointWriter(ChatEndpoint(endpoint), self.resources.prompts["skill_request"])

    def _context(self, trajectory: Trajectory, index: int | None) -> TextContext | None:
        if index is None:
            return None
        skill = self.bank.arms(trajectory.task_id)[index].skill
        text = skill.text(self.resources.prompts, self.settings["parts"])
        return TextContext(text, self.settings["place"])


METHOD = SkillSD
