"""What one job does, in rollouts and tokens, from the settings that its command is given.

Tokens of a rollout: its head is read, `sampled` ones are drawn, `glue` (tool results) is read. A
training step scores head and tail with the policy (forward and backward) and, by method, with the
teacher. LOPD's composer also encodes each task's experiences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lopd_repro.fetch.registry import registry
from lopd_repro.plan.graph import Job
from lopd_repro.plan.shape import Shape, backbone_shape
from lopd_repro.workflow import fetched, slices

_PAPER_TACO = 7000  # about, in the paper; the exact number is known when it has been fetched
_MINI = {"acebench": 60, "livecodebench": 72, "evalplus": 72}


@dataclass(frozen=True)
class Tokens:
    """Of one rollout, on average."""

    head: float
    sampled: float
    glue: float = 0.0

    @property
    def total(self) -> float:
        """All tokens that a model reads of it."""
        return self.head + self.sampled + self.glue


@dataclass(frozen=True)
class Work:
    """kind: what is timed together. rollouts: episodes or benchmark answers. sampled: tokens drawn.
    read: prompt tokens. scored: tokens of one forward pass; trained: of forward and backward.
    context: tokens that one attends to. disk: bytes that stay. peak: bytes while it runs.
    embedded: tokens read by the retriever. moved: bytes downloaded."""

    kind: str
    model: Shape | None = None
    batch: int = 1
    rollouts: float = 0.0
    sampled: float = 0.0
    read: float = 0.0
    scored: float = 0.0
    trained: float = 0.0
    context: float = 0.0
    disk: float = 0.0
    peak: float = 0.0
    embedded: float = 0.0
    embedder: Shape | None = None
    moved: float = 0.0

    @property
    def tokens(self) -> float:
        """Everything any model reads or draws."""
        return self.sampled + self.read + self.scored + self.trained + self.embedded


@dataclass
class Estimator:
    """Work of the jobs of one configuration.

    config: the whole of it, with the settings of its variants. known: assumptions.yaml.
    measured: tokens of a rollout by (domain, use), from a finished run.
    """

    config: Mapping[str, Any]
    known: Mapping[str, Any]
    measured: Mapping[tuple[str, str], Tokens] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.domains = slices.domains(self.config)
        self._domain_of = {b: d for d, own in self.domains.items() for b in own["backbones"]}

    def work(self, job: Job) -> Work:
        """One job's work."""
        backbone = job.get("backbone")
        if job.rule == "fetch":
            source = registry(fetched.sources_file(self.config)).get(job.get("source"))
            size = (source.known_bytes or 0.0) if source else 0.0
            return Work("download", disk=size, moved=size)
        if not backbone:
            return Work("other")
        domain = self._domain_of[backbone]
        own = self.domains[domain]
        shape = backbone_shape(backbone, own["backbones"][backbone], self.known)
        batch = int(own["engine"].get("max_batch", 64))
        base = Work("other", model=shape, batch=batch)
        makers: dict[str, Callable[[Work, Job, str], Work]] = {
            "base_rollouts": self._base_rollouts,
            "cold_start": self._cold_start,
            "retrieve": self._retrieve,
            "base_model": self._base_model,
        }
        name = job.rule.removesuffix("_variant")
        if name in makers:
            return makers[name](base, job, domain)
        if job.rule.startswith("train_"):
            return self._train(base, job, domain)
        if job.rule.startswith("evaluate_"):
            return self._evaluate(base, job, domain)
        return base

    def tokens(self, domain: str, use: str) -> Tokens:
        """Of one rollout: measured, or a share of the budget."""
        if (domain, use) in self.measured:
            return self.measured[domain, use]
        sampling = self.domains[domain]["sampling"]
        budget = sampling["rollout" if use == "rollout" else "evaluation"]["max_tail_tokens"]
        own = self.known["tokens"][domain]
        if self.config["scale"] in ("tiny", "ci"):
            return Tokens(0.5 * budget, 0.1 * budget, 0.2 * budget)
        shares = (own[f"{part}_share"]["value"] for part in ("sampled", "glue"))
        sampled, glue = (share * budget for share in shares)
        return Tokens(own["head"]["value"], sampled, glue)

    def training_tasks(self, domain: str) -> int:
        """Tasks of the training split."""
        tasks = self.domains[domain]["tasks"]
        held_out = tasks["sizes"]["validation"] + tasks["sizes"]["test"]
        if "train" in tasks["sizes"]:
            return int(tasks["sizes"]["train"])
        found = 0
        for source in fetched.task_sources(self.domains[domain]):
            if source.name != tasks.get("environments"):
                found += sum(pin.rows or 0 for pin in source.files.values())
        return (found or _PAPER_TACO) - int(held_out)

    def _rolled(self, work: Work, domain: str, use: str, rollouts: float) -> Work:
        tokens = self.tokens(domain, use)
        return replace(
            work,
            rollouts=work.rollouts + rollouts,
            sampled=work.sampled + rollouts * tokens.sampled,
            read=work.read + rollouts * (tokens.head + tokens.glue),
            context=tokens.head + (tokens.sampled + tokens.glue) / 2,
        )

    def _base_rollouts(self, work: Work, job: Job, domain: str) -> Work:
        own = self.domains[domain]["base_rollouts"]
        tasks = min(self.training_tasks(domain), own.get("task_limit") or 10**9)
        return self._rolled(replace(work, kind="rollouts"), domain, "rollout",
                            tasks * own["per_task"])  # fmt: skip

    def _train(self, work: Work, job: Job, domain: str) -> Work:
        config, method = self.domains[domain], job.get("method")
        method = method or job.rule.removeprefix("train_")
        own = slices.method_slice(config, method, job.get("backbone"))
        base = self._root(config, method)
        shape = work.model
        assert shape is not None
        per = {key: entry["value"] for key, entry in self.known["bytes_per_parameter"].items()}
        checkpoint = float(shape.parameters * per["checkpoint"])
        limit = own["validation"].get("task_limit") or 10**9
        validated = min(config["tasks"]["sizes"]["validation"], limit)
        validated *= own["validation"]["repeats"]
        work = replace(work, kind="train", disk=checkpoint, peak=checkpoint)
        if base == "vanilla":
            only = replace(work, kind="validate")
            return self._rolled(only, domain, "validation", validated)
        train = own["train"]
        steps, every = train["steps"], train["validate_every"]
        candidates = -(-steps // every)
        work = self._rolled(work, domain, "validation", validated * (1 + candidates))
        work = self._rolled(work, domain, "rollout", steps * train["rollouts_per_step"])
        teacher = base not in self.known["without_teacher"]
        if teacher:
            # With and without the context.
            checked = 2 * train.get("teacher_check_tasks", 0) * max(2, train["group_size"])
            work = self._rolled(work, domain, "rollout", checked)
        tokens = self.tokens(domain, "rollout")
        trained = steps * train["rollouts_per_step"] * tokens.total
        passes = self.known["passes"]
        scored = 0.0
        if teacher:
            learns = base in self.known["with_composer"] and not (
                own["method"].get("frozen_composer") or own["method"].get("latents") == "random"
            )
            scored = trained * passes["teacher_with_gradient" if learns else "teacher"]["value"]
            if base in self.known["with_composer"]:
                read = own["method"].get("n_retrieved", 3) * self._experience(domain)
                scored += steps * train["rollouts_per_step"] * read * (3.0 if learns else 1.0)
        kept = checkpoint * (1 + candidates * bool(train.get("keep_candidates")))
        return replace(
            work,
            trained=trained,
            scored=scored,
            disk=kept,
            peak=kept + float(shape.parameters * per["state"]),
        )

    def _root(self, config: Mapping[str, Any], method: str) -> str:
        """The method whose file a variant shares."""
        while like := (config["method_settings"].get(method) or {}).get("like"):
            method = like
        return method

    def _experience(self, domain: str) -> float:
        if ("any", "experience") in self.measured:
            return self.measured["any", "experience"].head
        if self.config["scale"] in ("tiny", "ci"):
            return self.tokens(domain, "rollout").total
        return float(self.known["tokens"]["experience"]["value"])

    def _cold_start(self, work: Work, job: Job, domain: str) -> Work:
        own = self.domains[domain]["cold_start"]
        examples = own["steps"] * own.get("batch", 8)
        read = self.tokens(domain, "rollout").total + own["n_retrieved"] * self._experience(domain)
        gradient = self.known["passes"]["teacher_with_gradient"]["value"]
        context = self.tokens(domain, "rollout").total / 2
        return replace(work, kind="cold_start", scored=examples * read * gradient, context=context)

    def _retrieve(self, work: Work, job: Job, domain: str) -> Work:
        config = self.domains[domain]
        name = config["bank"]["embedder"]
        queries = self.training_tasks(domain) + config["tasks"]["sizes"]["validation"]
        entries = (
            self.training_tasks(domain)
            * min(config["base_rollouts"]["per_task"], config["bank"]["per_task"])
            * self.known["tokens"]["success"]["value"]
        )
        read = (entries + 0.3 * queries) * self._experience(domain)
        if name == "backbone":
            return replace(work, kind="retrieve", embedded=read, embedder=work.model)
        if not name.startswith("hub:"):
            return replace(work, kind="retrieve")
        model = Shape(**self.known["models"][name.removeprefix("hub:")])
        return replace(work, kind="retrieve", embedded=read, embedder=model)

    def _base_model(self, work: Work, job: Job, domain: str) -> Work:
        base = self.domains[domain]["base_model"]
        first, second = base["training"], base.get("conversations_training", {})
        rows = first["steps"] * first["batch"]
        rows += second.get("steps", 0) * second.get("batch", 0)
        trained = rows * self.tokens(domain, "rollout").total
        return replace(work, kind="base_model", trained=trained, context=100.0)

    def _evaluate(self, work: Work, job: Job, domain: str) -> Work:
        config, benchmark = self.domains[domain], job.rule.removeprefix("evaluate_")
        if benchmark in ("envscaler", "candidates", "base_plus_composer"):
            count = config["tasks"]["sizes"]["test"] * config["evaluation"]["repeats"]
            if benchmark == "candidates":
                train = slices.method_slice(config, job.get("method"))["train"]
                count *= -(-train["steps"] // train["validate_every"])
            return self._rolled(replace(work, kind="evaluate"), domain, "evaluation", count)
        own = config["benchmarks"][benchmark]
        answers = benchmark_tasks(benchmark, own) * own.get("repeats", 1)
        use = benchmark if (domain, benchmark) in self.measured else "evaluation"
        kind = f"benchmark {benchmark}"
        return self._rolled(replace(work, kind=kind), domain, use, answers)


def benchmark_tasks(benchmark: str, own: Mapping[str, Any]) -> int:
    """Tasks of a benchmark under its settings; official numbers from the pins of its code."""
    from lopd_repro.benchmarks.ace.repository import COUNTS
    from lopd_repro.benchmarks.bfcl_data import CATEGORIES, OFFICIAL_TASKS
    from lopd_repro.benchmarks.bfcl_mini import TASKS_PER_CATEGORY
    from lopd_repro.benchmarks.evalplus.data import HUMAN_EVAL_TASKS, OFFICIAL
    from lopd_repro.benchmarks.lcb.questions import WINDOWS

    if own.get("suite", "official") == "mini":
        sizes = [4 * TASKS_PER_CATEGORY if benchmark == "bfcl" else _MINI[benchmark]]
    elif benchmark == "bfcl":
        sizes = [OFFICIAL_TASKS] * len(own.get("categories", CATEGORIES))
    elif benchmark == "acebench":
        sizes = list(COUNTS.values())
    elif benchmark == "livecodebench":
        sizes = [WINDOWS[name].count for name in own.get("windows", WINDOWS)]
    elif own.get("suite") == "humaneval_base":
        sizes = [HUMAN_EVAL_TASKS]
    else:
        sizes = [OFFICIAL[name].tasks for name in own.get("datasets", OFFICIAL)]
    first = own.get("limit") or own.get("tasks_per_category") or own.get("tasks_per_dataset")
    return sum(min(size, first or size) for size in sizes)
