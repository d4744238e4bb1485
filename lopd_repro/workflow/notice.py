"""What tables, figures and the page say about a run as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lopd_repro.workflow.slices import method_slice

ONE_STEP_OFF = "Trained one step off-policy (train.one_step_off): {methods}."


def notice(config: Mapping[str, Any], domains: Mapping[str, Mapping[str, Any]]) -> str:
    """The configuration's notice, and which trainings departed from being on-policy."""
    off = sorted(
        {
            name
            for own in domains.values()
            for name in own["method_settings"]
            if method_slice(own, name)["train"].get("one_step_off")
        }
    )
    text = str(config["notice"])
    return f"{text.rstrip()} {ONE_STEP_OFF.format(methods=', '.join(off))}" if off else text
