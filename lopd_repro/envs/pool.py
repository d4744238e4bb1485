"""Many environment episodes at once, in a few worker processes.

All requests of one call go out together; each worker runs its own in order and answers one
by one. A request that hangs, crashes its worker or breaks a limit is run once more, first
thing in a fresh worker, so that neither a neighbour's leftovers nor a loaded machine is held
against it; if it fails again its episode is over with reward 0 and is counted. The other
episodes of that worker are rebuilt from their log when they are next used.

Results depend on the pool's seed and each episode's own history alone: the code of an episode
gets its own module, and randomness is seeded for every request. Clocks are real, and what
dataset code does to imported modules is seen by the other episodes of its worker.
"""

from __future__ import annotations

import selectors
import time
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

from lopd_repro.data.schema import Environment, ToolTask
from lopd_repro.envs.protocol import Action
from lopd_repro.envs.worker import START_SECONDS, Limits, Worker, WorkerDiedError
from lopd_repro.errors import UserError
from lopd_repro.files import digest_text

Status = Literal["ok", "timeout", "crash", "error"]
Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class EpisodeSpec:
    """What a worker needs to build one episode; `checks` are the checklist's codes."""

    class_name: str
    class_code: str
    init_config: dict[str, Any]
    checks: tuple[str, ...] = ()
    seed: int = 0

    @classmethod
    def of(cls, task: ToolTask, environment: Environment, seed: int) -> EpisodeSpec:
        """The spec of a scenario in its environment."""
        codes = tuple(check.code for check in task.checklist)
        return cls(environment.class_name, environment.class_code, task.init_config, codes, seed)


@dataclass(frozen=True)
class StepResult:
    """Outcome of one tool call.

    kind: `ok` (observation is the result as text), `raised` (observation is the traceback),
    `unknown` (the world has no such attribute), `failed` (the episode is over, see status).
    status: `ok`, or why the episode is over. detail: the reason in words.
    output: the first characters of what the code printed.
    """

    kind: Literal["ok", "raised", "unknown", "failed"]
    observation: str = ""
    status: Status = "ok"
    detail: str = ""
    output: str = ""


@dataclass(frozen=True)
class Score:
    """Outcome of a checklist. `checks` holds (ran, result, error text) as EnvScaler's
    `run_check_function` returns them; `reward` is None for an empty checklist, else the share
    of all items that returned True, rounded to four digits; 0 when the episode failed."""

    reward: float | None
    status: Status = "ok"
    detail: str = ""
    checks: tuple[tuple[bool, bool | None, str | None], ...] = ()
    output: str = ""


@dataclass
class _Episode:
    spec: EpisodeSpec
    worker: int
    log: list[Call] = field(default_factory=list)
    in_flight: int = 0  # steps sent and not yet answered
    home: Worker | None = None  # the process that holds its state now
    status: Status = "ok"
    detail: str = ""


@dataclass
class _Request:
    position: int
    episode: int
    operation: Literal["reset", "step", "score", "state"]
    call: Call | None = None
    attempts: int = 0


@dataclass
class _Expected:
    """One answer to come. A rebuild belongs to the request that needs it."""

    request: _Request
    rebuild: bool
    seconds: float


@dataclass(frozen=True)
class _Answer:
    kind: str
    payload: Any
    printed: str


class _Lane:
    """One worker's place in the pool: the process, when there is one, and its queue."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.queue: deque[_Request] = deque()
        self.expected: deque[_Expected] = deque()
        self.known_classes: set[str] = set()
        self.progress = 0.0

    def stop(self) -> None:
        if self.worker is not None:
            self.worker.kill()
        self.worker = None
        self.known_classes.clear()
        self.expected.clear()


def _stop_all(lanes: list[_Lane]) -> None:
    for lane in lanes:
        lane.stop()


class EnvPool:
    """A pool of `n_workers` processes; use it in a `with` statement or call `shutdown`.

    `counters` holds `timeout`, `crash`, `error` (episodes lost), `rerun` (requests run again)
    and `restart` (workers replaced). `isolation` says what the system let the workers lock.
    One thread at a time may use a pool.
    """

    def __init__(self, n_workers: int = 1, limits: Limits | None = None, seed: int = 0) -> None:
        if n_workers < 1:
            raise UserError(f"n_workers: found {n_workers}, allowed are 1 and more")
        self.limits = limits or Limits()
        self.seed = seed
        self.counters: Counter[str] = Counter()
        self._episodes: dict[int, _Episode] = {}
        self._next = 0
        self._lanes = [_Lane() for _ in range(n_workers)]
        self._keys: dict[str, str] = {}
        self._finalizer = weakref.finalize(self, _stop_all, self._lanes)
        for lane in self._lanes:
            lane.worker = Worker(self.limits)  # they start side by side; `ready` comes later

    def __enter__(self) -> EnvPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Kill the workers. The pool cannot be used afterwards."""
        self._finalizer()

    @property
    def isolation(self) -> dict[str, Any]:
        """What worker 0 reports: network (`namespace` or `blocked`), user, limits refused."""
        return dict(self._ready(self._lanes[0]).report)

    @property
    def live(self) -> int:
        """Episodes not yet closed."""
        return len(self._episodes)

    # --- requests ---

    def reset(self, specs: Sequence[EpisodeSpec]) -> list[int]:
        """Begin episodes; ids in the order of `specs`. A world that cannot be built is a failed
        episode (`status`), not an exception."""
        ids = []
        for spec in specs:
            self._episodes[self._next] = _Episode(spec, self._next % len(self._lanes))
            ids.append(self._next)
            self._next += 1
        self._run([_Request(i, episode, "reset") for i, episode in enumerate(ids)])
        return ids

    def step(self, calls: Sequence[tuple[int, Action | Call]]) -> list[StepResult]:
        """Run one tool call in each named episode; results in order.

        Calls to the same episode run in order. A call on a failed episode does nothing.
        """
        requests = []
        for i, (episode, action) in enumerate(calls):
            call = (action.name, action.arguments) if isinstance(action, Action) else action
            requests.append(_Request(i, episode, "step", call))
        results = []
        for request, answer in zip(requests, self._run(requests), strict=True):
            if answer is None:
                results.append(StepResult("failed", **self._failure(request.episode)))
            elif answer.kind in ("ok", "raised"):
                kind: Literal["ok", "raised"] = "ok" if answer.kind == "ok" else "raised"
                results.append(StepResult(kind, answer.payload, output=answer.printed))
            else:
                results.append(StepResult("unknown", output=answer.printed))
        return results

    def score(self, episodes: Sequence[int]) -> list[Score]:
        """Run the checklists on the present states; the episodes can go on afterwards."""
        requests = [_Request(i, episode, "score") for i, episode in enumerate(episodes)]
        results = []
        for request, answer in zip(requests, self._run(requests), strict=True):
            if answer is None:
                results.append(Score(0.0, **self._failure(request.episode)))
            else:
                checks = tuple((ran, result, error) for ran, result, error in answer.payload)
                reward = checklist_reward([result is True for _, result, _ in checks])
                results.append(Score(reward, checks=checks, output=answer.printed))
        return results

    def states(self, episodes: Sequence[int]) -> list[str | None]:
        """The attributes of each world as JSON text (for inspection; `repr` where JSON has no
        form); None for a failed episode."""
        requests = [_Request(i, episode, "state") for i, episode in enumerate(episodes)]
        return [None if answer is None else answer.payload for answer in self._run(requests)]

    def status(self, episode: int) -> tuple[Status, str]:
        """`ok`, or how the episode failed, and the reason in words."""
        found = self._get(episode)
        return found.status, found.detail

    def close(self, episodes: Sequence[int]) -> None:
        """Forget episodes; an id that was closed before is ignored."""
        by_worker: dict[Worker, list[int]] = {}
        for episode in episodes:
            found = self._episodes.pop(episode, None)
            if found is not None and found.home is not None:
                by_worker.setdefault(found.home, []).append(episode)
        alive = {lane.worker for lane in self._lanes}
        for worker, ids in by_worker.items():
            if worker in alive:
                worker.put(["drop", ids])  # goes out with the next requests

    # --- running them ---

    def _get(self, episode: int) -> _Episode:
        try:
            return self._episodes[episode]
        except KeyError:
            raise KeyError(f"episode {episode} is closed or was never begun") from None

    def _failure(self, episode: int) -> dict[str, Any]:
        found = self._get(episode)
        return {"status": found.status, "detail": found.detail}

    def _run(self, requests: list[_Request]) -> list[_Answer | None]:
        """Answers in the order of `requests`; None where the episode has failed."""
        if not self._finalizer.alive:
            raise RuntimeError("this pool was shut down")
        answers: list[_Answer | None] = [None] * len(requests)
        lanes = [self._lanes[self._get(request.episode).worker] for request in requests]
        for lane, request in zip(lanes, requests, strict=True):
            lane.queue.append(request)
        busy = [lane for lane in self._lanes if lane.queue]
        try:
            for lane in busy:
                self._send(lane)
            while busy := [lane for lane in busy if lane.expected]:
                self._exchange(busy, answers)
        except BaseException:
            for lane in self._lanes:
                lane.queue.clear()
                if lane.expected:
                    for expected in lane.expected:
                        self._episodes[expected.request.episode].in_flight = 0
                    lane.stop()  # its answers would be taken for those of the next call
            raise
        return answers

    def _send(self, lane: _Lane) -> None:
        """Put everything in the lane's queue on the wire, rebuilds first where needed."""
        worker = self._ready(lane)
        idle = not lane.expected
        while lane.queue:
            request = lane.queue.popleft()
            episode = self._episodes[request.episode]
            if episode.status != "ok":
                continue
            building = request.operation == "reset"
            if building or episode.home is not worker:
                self._put_build(lane, worker, request, episode)
            if not building:
                self._put(lane, worker, request, episode)
        if idle:
            lane.progress = time.monotonic()
        worker.flush()

    def _put_build(self, lane: _Lane, worker: Worker, request: _Request, episode: _Episode) -> None:
        spec, limits = episode.spec, self.limits
        key = self._keys.get(spec.class_code)
        if key is None:
            key = self._keys[spec.class_code] = digest_text(spec.class_code)
        code = None if key in lane.known_classes else spec.class_code
        lane.known_classes.add(key)
        seed = f"{self.seed}/{spec.seed}"
        first = [request.episode, key, code, spec.class_name, spec.init_config, seed]
        worker.put(["reset", *first])
        rebuild = request.operation != "reset"
        lane.expected.append(_Expected(request, rebuild, limits.reset_seconds))
        for count, (name, arguments) in enumerate(episode.log):
            worker.put(["step", request.episode, count, name, arguments])
            lane.expected.append(_Expected(request, True, limits.step_seconds))
        episode.home = worker

    def _put(self, lane: _Lane, worker: Worker, request: _Request, episode: _Episode) -> None:
        count = len(episode.log) + episode.in_flight
        if request.operation == "step":
            assert request.call is not None
            episode.in_flight += 1
            worker.put(["step", request.episode, count, *request.call])
            seconds = self.limits.step_seconds
        elif request.operation == "score":
            worker.put(["score", request.episode, count, list(episode.spec.checks)])
            seconds = self.limits.score_seconds
        else:
            worker.put(["state", request.episode])
            seconds = self.limits.step_seconds
        lane.expected.append(_Expected(request, False, seconds))

    def _exchange(self, busy: list[_Lane], answers: list[_Answer | None]) -> None:
        """Wait for something to arrive or a limit to pass, and deal with it."""
        now = time.monotonic()
        deadlines = [lane.progress + lane.expected[0].seconds for lane in busy]
        by_descriptor: dict[int, _Lane] = {}
        with selectors.DefaultSelector() as selector:
            for lane in busy:
                worker = lane.worker
                assert worker is not None
                selector.register(worker.answers, selectors.EVENT_READ)
                by_descriptor[worker.answers] = lane
                if worker.unsent:
                    selector.register(worker.requests, selectors.EVENT_WRITE)
                    by_descriptor[worker.requests] = lane
            events = selector.select(max(0.0, min(deadlines) - now))
        for key, mask in events:
            lane = by_descriptor[key.fd]
            if lane.worker is None or key.fd not in (lane.worker.answers, lane.worker.requests):
                continue  # replaced while this batch of events was being worked off
            if mask & selectors.EVENT_WRITE:
                lane.worker.flush()
            else:
                self._receive(lane, answers)
        now = time.monotonic()
        for lane in busy:
            if lane.expected and now > lane.progress + lane.expected[0].seconds:
                self._receive(lane, answers)  # it may have answered while others were served
                if lane.expected and now > lane.progress + lane.expected[0].seconds:
                    seconds = lane.expected[0].seconds
                    self._blame(lane, "timeout", f"no answer within {seconds:g} s")

    def _receive(self, lane: _Lane, answers: list[_Answer | None]) -> None:
        assert lane.worker is not None
        try:
            arrived = lane.worker.take()
        except WorkerDiedError as reason:
            self._blame(lane, "crash", str(reason))
            return
        for episode_id, kind, payload, printed in arrived:
            expected = lane.expected[0] if lane.expected else None
            if expected is None or not _fits(expected, episode_id, kind, payload, printed):
                self._blame(lane, "crash", "it wrote something that is no answer")
                return
            if kind == "memory":
                self._blame(lane, "crash", "out of memory")
                return
            lane.expected.popleft()
            lane.progress = time.monotonic()
            request, episode = expected.request, self._episodes[expected.request.episode]
            if episode.status != "ok":
                continue  # answers behind the one that ended it
            if kind == "error":
                self._fail(episode, "error", payload)
            elif not expected.rebuild:
                answers[request.position] = _Answer(kind, payload, printed)
                if request.call is not None:
                    episode.in_flight -= 1
                    episode.log.append(request.call)

    def _fail(self, episode: _Episode, status: Status, detail: str) -> None:
        episode.status, episode.detail = status, detail
        self.counters[status] += 1

    def _blame(self, lane: _Lane, status: Status, detail: str) -> None:
        """The worker is lost at its first unanswered request: start anew and go on."""
        waiting: list[_Request] = []
        for expected in lane.expected:
            if not any(expected.request is request for request in waiting):
                waiting.append(expected.request)
                self._episodes[expected.request.episode].in_flight = 0
        lane.stop()
        self.counters["restart"] += 1
        if waiting:
            culprit = waiting[0]
            culprit.attempts += 1
            if culprit.attempts > 1:
                self._fail(self._episodes[culprit.episode], status, detail)
            else:
                self.counters["rerun"] += 1
        lane.queue.extend(waiting)
        if lane.queue:
            self._send(lane)

    def _ready(self, lane: _Lane) -> Worker:
        """The lane's worker, started and greeted; a dead one is replaced without blame."""
        if lane.worker is not None and lane.worker.process.poll() is not None:
            if not lane.worker.report:
                self._start_failed(lane.worker)
            lane.stop()
            self.counters["restart"] += 1
        if lane.worker is None:
            lane.worker = Worker(self.limits)
        worker = lane.worker
        while not worker.report:
            left = worker.started + START_SECONDS - time.monotonic()
            with selectors.DefaultSelector() as selector:
                selector.register(worker.answers, selectors.EVENT_READ)
                if not selector.select(max(0.0, left)):
                    self._start_failed(worker)
            try:
                greetings = worker.take()
            except WorkerDiedError:
                self._start_failed(worker)
            for _, _, report, _ in greetings:
                worker.report = report
        return worker

    def _start_failed(self, worker: Worker) -> None:
        reason, log = worker.why_it_ended(), worker.start_log().strip()
        worker.kill()
        raise UserError(f"an environment worker did not start: {reason} {log}")


def checklist_reward(passed: Sequence[bool]) -> float | None:
    """Share of checks passed, rounded to four digits (EnvScaler's `calculate_reward`).

    None for an empty checklist, which has no share: EnvScaler divides by zero there.
    """
    return round(sum(passed) / len(passed), 4) if passed else None


def _fits(expected: _Expected, episode: Any, kind: Any, payload: Any, printed: Any) -> bool:
    """Whether an answer has the form the request calls for; workers are not trusted."""
    if episode != expected.request.episode or not isinstance(printed, str):
        return False
    if kind in ("error", "memory", "raised"):
        return isinstance(payload, str)
    if kind == "unknown":
        return payload is None
    if kind != "ok":
        return False
    if expected.rebuild or expected.request.operation == "reset":
        return payload is None or isinstance(payload, str)
    if expected.request.operation == "score":
        return isinstance(payload, list) and all(
            isinstance(item, list) and len(item) == 3 for item in payload
        )
    return isinstance(payload, str)
