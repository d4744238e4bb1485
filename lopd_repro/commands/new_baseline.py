"""`lopd-repro new-baseline NAME`: start a baseline as one method file and one rule file.

    lopd-repro new-baseline my_method --label "My method"

Writes `baselines/NAME.py`, a working minimal method (a policy gradient on rewards above the
step's mean), and `baselines/NAME.smk`, its rule. Nothing else has to be edited: the next call of
the workflow trains and evaluates it and adds its rows to tables and comparisons, and no job of
another method runs again.
"""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.files import write_text

_NAME = re.compile(r"[a-z][a-z0-9_]*")

METHOD = '''"""{label}: say where it comes from, and first where it departs from that and why.

A minimal method to start from: a policy gradient on rewards above the step's mean, no teacher.
docs/adding_a_baseline.md says what else a method may choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from lopd_repro.rollout.episodes import Trajectory
from lopd_repro.training.losses import aggregate
from lopd_repro.training.method import Batch, Loss, Method, Preparation


class {class_name}(Method):
    """Policy gradient on rewards above the step's mean."""

    name = "{name}"
    label = "{label}"
    # Settings of the method; config method_settings.{name} overrides them.
    defaults: ClassVar[dict[str, Any]] = {{"scale": 1.0}}

    def prepare(self, trajectories: Sequence[Trajectory]) -> Preparation:
        """Advantage of each trajectory, from the whole step's rewards; 0 without a reward."""
        rewards = torch.tensor([t.reward for t in trajectories])
        advantage = torch.nan_to_num(rewards - rewards.nanmean())
        return Preparation([False] * len(trajectories), extra={{"advantage": advantage}})

    def loss(self, batch: Batch) -> Loss:
        """This micro-batch's share of the step's loss."""
        advantage = batch.extra["advantage"][batch.row] * self.settings["scale"]
        per_token = -advantage * batch.student.logp(batch.tokens)
        value = aggregate(per_token, batch.row, len(batch.trajectories), totals=batch.totals)
        return Loss(value)


METHOD = {class_name}
'''

RULE = """REGISTRY.add("{name}", label="{label}", file="baselines/{name}.py")


use rule train as train_{name} with:
    input:
        **method_inputs("{name}"),
    output:
        **method_outputs("{name}"),
    log:
        method_log("{name}"),
    benchmark:
        method_benchmark("{name}")
    params:
        **method_params("{name}"),
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("name", metavar="NAME", help="lower case letters, digits and _")
    parser.add_argument("--label", help="name in tables; NAME by default")
    parser.add_argument("--folder", type=Path, default=Path("baselines"))


def run(args: argparse.Namespace) -> int:
    """Write both files; existing ones are left alone."""
    name, label = args.name, args.label or args.name
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(
            f"new-baseline: found name {name!r}, allowed: a lower case letter, then lower case "
            "letters, digits and _"
        )
    if not label.isprintable() or any(c in label for c in '"\\{}'):
        raise UserError(
            f"new-baseline: found label {label!r}, allowed: text without quotes, braces and "
            "backslashes"
        )
    if not args.folder.is_dir():
        raise UserError(
            f"new-baseline: no folder {args.folder}; call it at the root of the project"
        )
    taken = [p for p in (args.folder / f"{name}.py", args.folder / f"{name}.smk") if p.exists()]
    if taken or name == "lopd":
        raise UserError(f"new-baseline: {taken[0] if taken else name} exists already")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    values = {"name": name, "label": label, "class_name": class_name}
    for suffix, text in (("py", METHOD), ("smk", RULE)):
        path = args.folder / f"{name}.{suffix}"
        write_text(path, text.format(**values))
        print(path)
    return 0
