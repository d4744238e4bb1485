"""The paper's claim about rollout budgets, as the ledger in paper_tables/claims.yaml has it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lopd_repro.errors import UserError


@dataclass(frozen=True)
class BudgetClaim:
    """`method` surpasses every one of `rivals` with less than `limit` of their generations."""

    id: str
    statement: str
    method: str
    rivals: tuple[str, ...]
    limit: float


def read_claim(path: Path, claim_id: str, labels: Mapping[str, str]) -> BudgetClaim:
    """The claim of kind `budget` with this id; `labels` maps our methods to the paper's names.

    The rivals are those whose point on the claim's own curve it names.
    """
    try:
        entries = yaml.safe_load(path.read_text())["claims"]
        found = next((entry for entry in entries if entry.get("id") == claim_id), None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        line = " ".join(str(error).split())
        raise UserError(f"{path}: not a readable ledger of claims ({line})") from None
    if found is None or found.get("kind") != "budget":
        ids = [entry["id"] for entry in entries if entry.get("kind") == "budget"]
        raise UserError(f"--claim: found {claim_id}, allowed: {', '.join(ids)} ({path})")
    methods = {label: name for name, label in labels.items()}

    def method(label: str) -> str:
        if label not in methods:
            allowed = ", ".join(methods)
            raise UserError(f"{path}: claim {claim_id} names {label!r}, allowed: {allowed}")
        return methods[label]

    try:
        rivals = [method(label) for label in _rivals(found)]
        return BudgetClaim(
            claim_id,
            str(found["statement"]),
            method(found["curve"]["series"]),
            tuple(dict.fromkeys(rivals)),
            float(found["percent"]) / 100.0,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: claim {claim_id}: not a claim about budgets ({error!r})"
        ) from None


def _rivals(entry: Mapping[str, Any]) -> list[str]:
    pattern = re.compile(re.escape(entry["curve"]["file"]) + r"\[([^,\]]+),")
    return [m[1] for rival in entry["rivals"] if (m := pattern.match(rival["cell"]))]
