"""ACEBench's agent tasks as a benchmark of this project: the mini-suite or the official suite.

Settings: `suite` (`mini`, the default, or `official`), what both share (`repeats`, `seed`,
`limit`, `user`, `unmatched`), `official` for the official suite's options, and for the mini-suite
`in_flight`, `categories`, `overflow`, `sampling` and `dialogue`. `dialogue.prompt_file` names a
text file whose content becomes the system message.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lopd_repro.benchmarks import Benchmark
from lopd_repro.benchmarks.ace.dialogue import DialogueSettings
from lopd_repro.benchmarks.ace.mini import MiniSettings, MiniSuite
from lopd_repro.benchmarks.client import Sampling
from lopd_repro.errors import UserError
from lopd_repro.experience.endpoint import EndpointSettings
from lopd_repro.settings import build

SUITES = ("mini", "official")
_SHARED = ("repeats", "seed", "limit", "unmatched")


def make(settings: dict[str, Any], folder: Path) -> Benchmark:
    """The benchmark; `folder` is this file's."""
    given = dict(settings)
    suite = given.pop("suite", "mini")
    if suite not in SUITES:
        raise UserError(f"acebench.suite: found {suite!r}, allowed: {', '.join(SUITES)}")
    user = given.pop("user", None)
    user = None if user is None else build(EndpointSettings, user, "acebench.user")
    official = given.pop("official", {})
    if suite == "official":
        return _official(given, official, user, folder)
    given["sampling"] = build(Sampling, given.get("sampling", {}), "acebench.sampling")
    given["dialogue"] = _dialogue(given.get("dialogue", {}))
    mini = build(MiniSettings, {**given, "user": user}, "acebench")
    return MiniSuite(folder / "data" / "mini", mini)


def _official(
    given: dict[str, Any], options: Any, user: EndpointSettings | None, folder: Path
) -> Benchmark:
    from lopd_repro.benchmarks.ace.official import OfficialSettings, OfficialSuite

    shared = {name: given[name] for name in _SHARED if name in given}
    checked = build(MiniSettings, shared, "acebench")
    return OfficialSuite(
        folder,
        build(OfficialSettings, options, "acebench.official"),
        user,
        **{name: getattr(checked, name) for name in _SHARED},
    )


def _dialogue(values: Any) -> DialogueSettings:
    if isinstance(values, dict) and "prompt_file" in values:
        values = dict(values)
        path = Path(values.pop("prompt_file"))
        if "system" in values:
            raise UserError("acebench.dialogue: allowed: one of system and prompt_file")
        try:
            values["system"] = path.read_text().rstrip("\n")
        except OSError as error:
            raise UserError(
                f"acebench.dialogue.prompt_file: {path} cannot be read ({error.strerror})"
            ) from None
    return build(DialogueSettings, values, "acebench.dialogue")
