"""Peak memory and time of losses with the output projection in chunks, against the dense form.

    python benchmarks/chunked_losses.py [--hidden 1024] [--tokens 4096] [--cases top_m ...]

Three losses, forward and backward, on random hidden states and weights in float32:

sampled     a loss of the sampled tokens' log-probabilities (GRPO); gradients to the student's
            hidden states and to the head
top_m       the teacher's top 20 and a tail bucket, and the sampled tokens of both (LOPD);
            gradients to the student's hidden states and head, and to the teacher's hidden states
forward_kl  KL(teacher || student) over the whole vocabulary (SDFT, OPSD); gradients to the
            student's hidden states and head

Every measurement is a process of its own, the forms take turns, and the ratios are those of
medians. Memory is the high-water mark of resident memory over what was resident before the
loss, inputs and weights, so it holds gradients as well as temporaries. Time is the process's CPU
time on one thread, page faults included. Losses and gradients of both forms must agree. The form
`torch` is `torch.nn.functional.linear_cross_entropy`; `quarter` is the chunked one on a quarter of
the tokens. The dense form needs about 3 (sampled) or 5 (the others) times tokens x vocabulary x 4
bytes.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from lopd_repro.training.chunked_scores import token_scores
from lopd_repro.training.losses import aggregate, reverse_kl_topk_tail
from lopd_repro.training.token_scores import TokenScores

CASES = ("sampled", "top_m", "forward_kl")
TOP = 20


def loss_of(case: str, student: TokenScores, teacher: TokenScores, tokens: torch.Tensor) -> Any:
    """The scalar that is differentiated."""
    n = len(tokens)
    row = torch.arange(n) // 256
    n_rows = int(row[-1]) + 1

    def mean(values: torch.Tensor) -> torch.Tensor:
        return aggregate(values, row, n_rows, "seq_mean_token_mean")

    if case == "sampled":
        slope = torch.linspace(-1, 1, n)
        return student.mean_loss(tokens, lambda logp, part: logp * slope[part], mean)[0]
    if case == "forward_kl":
        return student.mean_divergence(teacher.without_head_gradient(), 0.0, mean)
    top, ids = teacher.topk(TOP)
    kl = mean(reverse_kl_topk_tail(student.logp_at(ids), top))
    return kl - mean(teacher.logp(tokens) - student.logp(tokens).detach())


def measure(case: str, form: str, args: argparse.Namespace) -> dict[str, float]:
    """One forward and backward pass in this process."""
    torch.set_num_threads(1)
    n = args.tokens // (4 if form == "quarter" else 1)
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).mul_(scale)

    hidden = drawn(n, args.hidden).requires_grad_()
    weight = drawn(args.vocabulary, args.hidden, scale=2 * args.hidden**-0.5).requires_grad_()
    theirs, their_weight = hidden.detach() + 0.3 * drawn(n, args.hidden), weight.detach().clone()
    theirs.requires_grad_(case == "top_m")
    tokens = torch.randint(args.vocabulary, (n,), generator=generator)
    chunk = 0 if form == "dense" else args.chunk
    # The first products of a process set up the library that makes them.
    (drawn(8, 8) @ drawn(8, 8)).log_softmax(-1)
    gc.collect()
    before = reset_high_water()
    start = time.process_time()
    if form == "torch":
        logp = -torch.nn.functional.linear_cross_entropy(
            hidden,
            weight,
            tokens,
            reduction="none",
            options=torch.nn.LinearCrossEntropyOptions(
                batch_chunk_size=chunk, chunking_method=None
            ),
        )
        value = aggregate(
            logp * torch.linspace(-1, 1, n), torch.arange(n) // 256, n, "seq_mean_token_mean"
        )
    else:
        student = token_scores(hidden, weight, 1.0, 0, tokens, chunk)
        teacher = token_scores(theirs, their_weight, 1.0, 0, tokens, chunk)
        value = loss_of(case, student, teacher, tokens)
    torch.autograd.backward(value)
    seconds = time.process_time() - start
    peak = high_water() - before
    found = {"seconds": seconds, "megabytes": peak / 2**20, "before": before / 2**20}
    found["value"] = float(value.detach())
    for name, leaf in {"hidden": hidden, "weight": weight, "teacher": theirs}.items():
        found[name] = 0.0 if leaf.grad is None else float(leaf.grad.double().norm())
    return found


def reset_high_water() -> int:
    """Set the high-water mark of resident memory to what is resident now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return high_water()


def high_water() -> int:
    """Highest resident memory since the last reset, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def agree(one: dict[str, float], other: dict[str, float]) -> bool:
    """Whether value and gradient norms are equal to float32's accuracy."""
    return all(
        abs(one[key] - other[key]) <= 1e-3 * abs(one[key]) + 1e-5
        for key in ("value", "hidden", "weight", "teacher")
    )


def main() -> None:
    """Take turns, print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--chunk", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--one", nargs=2, metavar=("CASE", "FORM"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(*args.one, args)))
        return
    print(
        f"{args.tokens} tokens x {args.vocabulary} entries, width {args.hidden}, chunks of "
        f"{args.chunk}, float32, {args.rounds} rounds"
    )
    for case in args.cases:
        forms = ["dense", "chunked"] + ["torch"] * (case == "sampled")
        runs: dict[str, list[dict[str, float]]] = {form: [] for form in [*forms, "quarter"]}
        for _ in range(args.rounds):
            for form in forms:
                runs[form].append(child(case, form, args))
        runs["quarter"].append(child(case, "quarter", args))
        dense, chunked = (runs[form] for form in ("dense", "chunked"))
        if not all(agree(a, b) for a, b in zip(dense, chunked, strict=True)):
            sys.exit(f"{case}: the forms differ: {dense[0]} {chunked[0]}")
        for form, found in runs.items():
            print(
                f"{case} {form}: {middle(found, 'seconds'):.1f} s, "
                f"{middle(found, 'megabytes'):.0f} MiB above {middle(found, 'before'):.0f}"
            )
        for form in forms[1:]:
            time_ratio = middle(runs[form], "seconds") / middle(dense, "seconds")
            memory = middle(dense, "megabytes") / middle(runs[form], "megabytes")
            print(
                f"{case}: {form} takes {time_ratio:.2f} times the time, 1/{memory:.1f} the memory"
            )
        growth = middle(chunked, "megabytes") / middle(runs["quarter"], "megabytes")
        print(f"{case}: four times the tokens take {growth:.3f} times the memory", flush=True)


def child(case: str, form: str, args: argparse.Namespace) -> dict[str, float]:
    """A measurement in a process of its own."""
    sizes = [f"--{n}={getattr(args, n)}" for n in ("tokens", "vocabulary", "hidden", "chunk")]
    done = subprocess.run(
        [sys.executable, __file__, *sizes, "--one", case, form], stdout=subprocess.PIPE, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def middle(runs: list[dict[str, float]], key: str) -> float:
    """Median over the runs."""
    return statistics.median(run[key] for run in runs)


if __name__ == "__main__":
    main()
