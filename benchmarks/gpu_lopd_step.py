"""One LOPD step on a randomly initialised model of Qwen3-0.6B's shape: seconds, tokens, memory.

    python benchmarks/gpu_lopd_step.py > step.json
    python benchmarks/gpu_lopd_step.py --profile step.txt > step.json
    python benchmarks/gpu_lopd_step.py --device cpu --layers 2 --hidden 128 --vocabulary 2048 ...

Nothing is downloaded: the model is drawn from its configuration, tokenizer and tasks are the
bundled tiny ones. Everything else is what a training run does: episodes in sandboxed environments
through the engine `hf`, latents composed from experiences, the frozen teacher that reads them,
losses with the output projection in chunks, one backward pass for policy and composer, both
optimisers. A model of random weights writes no call and practically no end token, so that an
episode is one turn of `--turn-tokens` tokens.

Weights, gradients and moments are float32; `--compute bfloat16` (the default on a GPU) runs
matrix products in bfloat16 by autocast. Deterministic algorithms are on, as in training. The first
step pays for what is set up once: the last one is the one to read. Prints one JSON object: for each
step its seconds, tokens a second and peak memory by phase (`torch.cuda.max_memory_allocated`; on a
CPU only the process's high-water mark), its metrics, the device and versions.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import yaml

from lopd_repro.commands.wiring import read_prompts, world
from lopd_repro.data.schema import TaskSet
from lopd_repro.data.tiny import demonstration, lite_trace, tiny_task_set, tiny_vocabulary
from lopd_repro.errors import UserError
from lopd_repro.experience.bank import Experience, write_bank
from lopd_repro.files import write_json
from lopd_repro.lopd.composer import Composer, ComposerSettings
from lopd_repro.lopd.method import LOPD
from lopd_repro.lopd.saved import save_composer
from lopd_repro.models.backbone import DTYPES, Backbone, copy_model, end_token_ids, freeze
from lopd_repro.models.chat import ChatCodec
from lopd_repro.models.tiny_tokenizer import build_tokenizer
from lopd_repro.rollout.engine import SamplingParams
from lopd_repro.rollout.episodes import EpisodeRequest, Trajectory, collect
from lopd_repro.rollout.hf_engine import HFEngine
from lopd_repro.training.method import Resources
from lopd_repro.training.step import PhaseClock, Stepper, StepSettings

CONFIG = Path(__file__).resolve().parents[1] / "config" / "tiny.yaml"
GIB = 2**30


class DeviceClock(PhaseClock):
    """Phases that end when the device has done their work; with each phase's peak memory."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._on_gpu = device.type == "cuda"
        self.peak_gib: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the block's time to a phase and remember its peak."""
        if not self._on_gpu:
            with super().phase(name):
                yield
            return
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        with super().phase(name):
            yield
            torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() / GIB
        self.peak_gib[name] = max(self.peak_gib.get(name, 0.0), round(peak, 3))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Options; their defaults are Qwen3-0.6B's shape and a step of 32 rollouts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compute", choices=("float32", "bfloat16"))
    for name, value in {
        "layers": 28,
        "hidden": 1024,
        "heads": 16,
        "kv-heads": 8,
        "head-size": 128,
        "feed-forward": 3072,
        "vocabulary": 151_936,
        "latents": 32,
        "composer-depth": 8,
        "retrieved": 3,
        "rollouts": 32,
        "turn-tokens": 1024,
        "micro-batch": 4,
        "head-chunk": 1024,
        "steps": 2,
        "threads": 1,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--profile", type=Path, help="write torch's profile of the last step here")
    return parser.parse_args(argv)


def usable_device(name: str) -> torch.device:
    """The device, or a `UserError` where this torch does not see it."""
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"--device {name}: torch {torch.__version__} sees no GPU; allowed: cpu, or a torch "
            "that is built for CUDA on a machine with a GPU"
        )
    return device


def random_backbone(args: argparse.Namespace, device: torch.device) -> Backbone:
    """A Qwen3 of the given shape with the tiny tokenizer; ids beyond its words have no text."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = build_tokenizer(tiny_vocabulary(), 40_960)
    if args.vocabulary < len(tokenizer):
        raise UserError(
            f"--vocabulary: found {args.vocabulary}, allowed: {len(tokenizer)} or more, the "
            "tokenizer's words"
        )
    config = Qwen3Config(
        vocab_size=args.vocabulary,
        hidden_size=args.hidden,
        intermediate_size=args.feed_forward,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads,
        head_dim=args.head_size,
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    with device:
        model: Any = Qwen3ForCausalLM(config)
    return Backbone(model.eval(), tokenizer, end_token_ids(model, tokenizer))


def method_files(
    folder: Path, tasks: TaskSet, backbone: Backbone, args: argparse.Namespace
) -> dict[str, str]:
    """LOPD's input files: each task is given the demonstrations of the tasks after it."""
    names = list(tasks.tasks)
    write_bank(
        folder / "bank.jsonl",
        [
            Experience(
                f"{n}#1", n, task.task, lite_trace(demonstration(task).calls), 1.0, (0,), (True,)
            )
            for n, task in tasks.tasks.items()
        ],
    )
    following = {
        n: [f"{names[(i + k) % len(names)]}#1" for k in range(1, args.retrieved + 1)]
        for i, n in enumerate(names)
    }
    groups = {n: task.env_id for n, task in tasks.tasks.items()}
    write_json(folder / "retrieved.json", {"train": following, "groups": groups})
    shape = ComposerSettings(n_latents=args.latents, depth=args.composer_depth)
    # A composer puts an adapter on its backbone; the policy has none.
    twin = freeze(copy_model(backbone.model))
    composer = Composer(twin, backbone.tokenizer, shape, 0, "composer")
    save_composer(composer, folder / "composer.safetensors")
    return {
        "bank": str(folder / "bank.jsonl"),
        "retrieved": str(folder / "retrieved.json"),
        "composer": str(folder / "composer.safetensors"),
    }


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Make everything, take the steps, measure."""
    device = usable_device(args.device)
    compute = args.compute or ("bfloat16" if device.type == "cuda" else "float32")
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    settings = yaml.safe_load(CONFIG.read_text())
    prompts = read_prompts(settings["prompts"])
    tasks = tiny_task_set(seed=0, count=max(args.rollouts, args.retrieved + 1))
    backbone = random_backbone(args, device)
    codec = ChatCodec(backbone.tokenizer, backbone.eos_ids)
    engine = HFEngine(backbone.model, backbone.eos_ids, codec.pad_id, max(1, args.rollouts))
    sampling = SamplingParams(
        max_turn_tokens=args.turn_tokens, max_tail_tokens=2 * args.turn_tokens
    )
    clock = DeviceClock(device)
    with tempfile.TemporaryDirectory() as folder, world(settings, prompts) as running:
        domain = running.domain(tasks)
        files = method_files(Path(folder), tasks, backbone, args)
        method = LOPD(
            {"n_retrieved": args.retrieved},
            Resources(backbone, codec, domain, 0, "random", files, vars(prompts)),
        )
        stepper = Stepper(
            backbone.model,
            method,
            StepSettings(micro_batch=args.micro_batch, head_chunk_tokens=args.head_chunk),
            clock,
        )
        names = list(tasks.tasks)[: args.rollouts]
        steps = []
        for step in range(args.steps):
            requests = [EpisodeRequest(n, i, step * 10_000 + i, 0) for i, n in enumerate(names)]
            last = step == args.steps - 1
            with profiled(args.profile if last else None, device):
                clock.seconds.clear()
                clock.peak_gib.clear()
                start = time.perf_counter()
                with clock.phase("rollout"), autocast(device, compute):
                    done = collect(engine, codec, domain, requests, sampling)
                with autocast(device, compute):
                    metrics = stepper.step(done)
                steps.append(step_row(clock, time.perf_counter() - start, done, metrics))
    return {
        "device": device_row(device),
        "versions": versions(),
        "model": {
            "class": type(backbone.model).__name__,
            "parameters": sum(p.numel() for p in backbone.model.parameters()),
            "composer_parameters": sum(
                p.numel() for group in method.parameter_groups() for p in group.parameters
            ),
            "weights": "float32",
            "compute": compute,
        },
        "options": {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()},
        "steps": steps,
        "process_peak_gib": round(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB, 3
        ),
    }


def step_row(
    clock: DeviceClock, total: float, done: Sequence[Trajectory], metrics: dict[str, float]
) -> dict[str, Any]:
    """One step's numbers."""
    sampled = sum(t.n_sampled for t in done)
    tails = sum(len(t.tail) for t in done)
    update = total - clock.seconds["rollout"]
    read = metrics["forwarded_student"] + metrics["forwarded_teacher"]
    return {
        "seconds": {"step": round(total, 4)}
        | {name: round(s, 4) for name, s in sorted(clock.seconds.items())},
        "peak_gib": dict(sorted(clock.peak_gib.items())),
        "tokens": {"sampled": sampled, "tails": tails, "scored": int(read)},
        "tokens_per_second": {
            "sampled": round(sampled / clock.seconds["rollout"], 1),
            "scored_and_trained": round(read / update, 1),
        },
        "metrics": {name: value for name, value in sorted(metrics.items())},
    }


def autocast(device: torch.device, compute: str) -> AbstractContextManager[Any]:
    """Matrix products in another precision than the weights'."""
    if compute == "float32":
        return nullcontext()
    return torch.autocast(device.type, DTYPES[compute])


@contextmanager
def profiled(path: Path | None, device: torch.device) -> Iterator[None]:
    """Write a table of the block's most expensive operations."""
    if path is None:
        yield
        return
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as found:
        yield
    order = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    path.write_text(found.key_averages().table(sort_by=order, row_limit=40) + "\n")


def device_row(device: torch.device) -> dict[str, Any]:
    """What the numbers were taken on."""
    if device.type != "cuda":
        return {"type": device.type, "name": platform.processor() or platform.machine()}
    properties = torch.cuda.get_device_properties(device)
    return {
        "type": "cuda",
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_gib": round(properties.total_memory / GIB, 1),
    }


def versions() -> dict[str, str | None]:
    """Versions that matter to the numbers."""
    packages = ("transformers", "peft", "lopd-repro")
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        **{name: importlib.metadata.version(name) for name in packages},
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the JSON; 1 and one line where an option cannot be served."""
    try:
        print(json.dumps(run(parse(argv)), indent=1))
    except UserError as error:
        print(f"gpu_lopd_step: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
