"""The episode loop: heads in, trajectories of exact token ids out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lopd_repro.models.chat import ChatCodec
from lopd_repro.rollout.divided import DividedEngine
from lopd_repro.rollout.domain import Domain, TurnOutcome
from lopd_repro.rollout.engine import Prompt, Reply, RolloutEngine, SamplingParams, Turn
from lopd_repro.rollout.heads import BuiltHead, Context, build_head
from lopd_repro.rollout.thinking import closing_ids


@dataclass(frozen=True)
class EpisodeRequest:
    """One episode to run. `group` is the index of its group of rollouts of the same task."""

    task_id: str
    group: int
    rollout_seed: int
    environment_seed: int
    context: Context = None


@dataclass
class Trajectory:
    """One finished episode.

    `tail` holds every id after the head; `supervised[j]` is 1 where the policy sampled `tail[j]`
    (reasoning, call and end token), 0 on glue. `logp` and `raw_logp` are 0 on glue. `reward` is
    NaN when the episode could not be scored.
    """

    task_id: str
    group: int
    head: tuple[int, ...]
    tail: list[int] = field(default_factory=list)
    supervised: list[bool] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    raw_logp: list[float] = field(default_factory=list)
    reward: float = math.nan
    status: str = "running"
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def n_sampled(self) -> int:
        """Number of supervised tokens."""
        return sum(self.supervised)

    def extend(self, ids: list[int], turn: Turn | None = None) -> None:
        """Append sampled ids (with their turn) or glue ids (without)."""
        self.tail += ids
        self.supervised += [turn is not None] * len(ids)
        self.logp += turn.logp if turn else [0.0] * len(ids)
        self.raw_logp += turn.raw_logp if turn else [0.0] * len(ids)


@dataclass(frozen=True)
class Started:
    """Episodes whose heads are built and whose environments are begun, before anything is sampled.

    One of each per request, in their order.
    """

    prompts: list[Prompt]
    trajectories: list[Trajectory]
    handles: list[int]


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from named parts, the same on every machine."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def collect(
    engine: RolloutEngine,
    codec: ChatCodec,
    domain: Domain,
    requests: Sequence[EpisodeRequest],
    sampling: SamplingParams,
    started: Started | None = None,
) -> list[Trajectory]:
    """Run episodes to their end; trajectories come back in the order of the requests.

    `started` is what `begin_episodes` gave for these requests, if it was called before.
    """
    if isinstance(engine, DividedEngine):
        # Repeats of a task without groups are told apart by their seed alone.
        keys = [(r.task_id, r.group) for r in requests]
        own = engine.engine
        return engine.divide(
            requests, keys, lambda share: collect(own, codec, domain, share, sampling)
        )
    if not requests:
        return []
    started = started or begin_episodes(codec, domain, requests)
    return _play(engine, codec, domain, started, sampling)


def begin_episodes(codec: ChatCodec, domain: Domain, requests: Sequence[EpisodeRequest]) -> Started:
    """Build heads and begin environments; nothing of this depends on the policy's weights."""
    prompts: list[Prompt] = []
    trajectories: list[Trajectory] = []
    # A group's rollouts share their head: rendering it once a group is most of what it costs.
    heads: dict[tuple[str, int], BuiltHead] = {}
    for request in requests:
        key = (request.task_id, id(request.context))
        if key not in heads:
            heads[key] = build_head(codec, domain.opening(request.task_id), request.context)
        built = heads[key]
        head = built.head
        prompts.append(Prompt(head.ids, request.rollout_seed, head.span, built.latents))
        trajectories.append(Trajectory(request.task_id, request.group, head.ids))
    handles = domain.begin([(r.task_id, r.environment_seed) for r in requests])
    return Started(prompts, trajectories, handles)


def _play(
    engine: RolloutEngine,
    codec: ChatCodec,
    domain: Domain,
    started: Started,
    sampling: SamplingParams,
) -> list[Trajectory]:
    trajectories, handles = started.trajectories, started.handles
    unfinished: dict[int, list[int]] = {}

    def on_turns(turns: list[tuple[int, Turn]]) -> list[Reply]:
        replies: dict[int, Reply] = {}
        whole: dict[int, list[int]] = {}
        for index, turn in turns:
            trajectories[index].extend(turn.ids, turn)
            whole[index] = unfinished.pop(index, []) + turn.ids
            if turn.finish == "thinking":
                replies[index] = _close_thinking(codec, trajectories[index], whole[index], sampling)
                if (closing := replies[index]) is not None:
                    unfinished[index] = whole[index] + closing
        open_turns = [(i, t) for i, t in turns if t.finish not in ("budget", "thinking")]
        outcomes = dict(
            zip(
                (i for i, _ in open_turns),
                domain.turn([(handles[i], codec.decode(whole[i])) for i, _ in open_turns]),
                strict=True,
            )
        )
        records = {i: outcome.record for i, outcome in outcomes.items()}
        replies |= {
            i: _reply(codec, trajectories[i], t, outcomes[i], sampling) for i, t in open_turns
        }
        spent = [i for i, _ in turns if replies.get(i) is None and not _ended(outcomes.get(i))]
        for i, outcome in zip(spent, domain.cut([handles[i] for i in spent]), strict=True):
            outcomes[i] = outcome
        answers: list[Reply] = []
        for index, _ in turns:
            trajectory, reply = trajectories[index], replies.get(index)
            if index in outcomes:
                outcome = outcomes[index]
                # A turn that ran keeps its record although its observation did not fit.
                record = {**records.get(index, {}), **outcome.record}
                trajectory.records.append({**record, "tokens": len(whole[index])})
                if reply is None:
                    trajectory.status = outcome.status
                    trajectory.reward = math.nan if outcome.reward is None else outcome.reward
            if reply is not None:
                trajectory.extend(reply)
            answers.append(reply)
        return answers

    engine.run(started.prompts, sampling, on_turns)
    return trajectories


def _ended(outcome: TurnOutcome | None) -> bool:
    return outcome is not None and outcome.done


def _reply(
    codec: ChatCodec,
    trajectory: Trajectory,
    turn: Turn,
    outcome: TurnOutcome,
    sampling: SamplingParams,
) -> Reply:
    """Glue that carries the observation, or None when the episode ends or the glue is too long."""
    if outcome.done:
        return None
    glue = codec.glue(outcome.role, outcome.observation, after_eos=turn.finish == "eos")
    return glue if _fits(trajectory, glue, sampling) else None


def _close_thinking(
    codec: ChatCodec, trajectory: Trajectory, turn_so_far: list[int], sampling: SamplingParams
) -> Reply:
    """Ids after which the turn goes on (none where its reasoning is over), None without room."""
    closing = closing_ids(codec, turn_so_far)
    return closing if _fits(trajectory, closing, sampling) else None


def _fits(trajectory: Trajectory, glue: list[int], sampling: SamplingParams) -> bool:
    limit = sampling.tail_limit(len(trajectory.head))
    return len(trajectory.tail) + len(glue) < limit
