"""Consistency checks on a paper's printed numbers, and the ledger of its claims.

    lopd-repro audit --paper paper_tables --out results/audit

needs no GPU and no training, and does not import torch. How to read what it writes is told in
`docs/reading_the_audit.md`.
"""

from __future__ import annotations

from lopd_repro.audit.command import run_audit
from lopd_repro.audit.core import Audit, audit_paper
from lopd_repro.audit.findings import Finding, Severity
from lopd_repro.audit.paper import Paper, read_paper

__all__ = ["Audit", "Finding", "Paper", "Severity", "audit_paper", "read_paper", "run_audit"]
