"""The audit ledger: findings on the printed numbers, and every claim with both verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from lopd_repro.audit.expression import Verdict
from lopd_repro.audit.findings import Severity
from lopd_repro.report.page.markup import Content, Html, el
from lopd_repro.report.page.results import Results
from lopd_repro.report.page.section import Section, absent, bullets, chip, fold, link, sources

PRINTED = "audit"
REPRODUCED = "audit_reproduced"
_CSS = {
    Verdict.FOLLOWS.value: "ok",
    Verdict.CONSISTENT.value: "info",
    Verdict.NOT_DECIDABLE.value: "caution",
    Verdict.CONTRADICTED.value: "contradiction",
}
_TITLES = {
    Severity.CONTRADICTION.value: "Contradictions: no reading that was tried makes these agree",
    Severity.DISCREPANCY.value: "Discrepancies: a named other reading explains them",
    Severity.CAUTION.value: "Cautions",
    Severity.INFO.value: "Facts recovered from the printed digits",
}


def audit_section(results: Results) -> Section:
    """Ledger and findings, with links to the audit's own reports."""
    if not results.has(f"{PRINTED}/findings.csv"):
        return Section("audit", "Audit ledger", absent(results, f"{PRINTED}/report.html"))
    findings = results.rows(f"{PRINTED}/findings.csv")
    claims = results.rows(f"{PRINTED}/claims.csv")
    body: list[Content] = [
        el(
            "p",
            "What the paper's printed numbers can and cannot mean, from the numbers alone. The"
            " whole arithmetic is in ",
            link(results, f"{PRINTED}/report.html", "the audit's own report"),
            _second_report(results),
        ),
        el("p", _summary(findings, claims)),
        el("h3", "Claims"),
        _ledger(claims, _second(results)),
        el("h3", "Findings"),
        [_findings(findings, severity.value) for severity in Severity],
        sources(
            results,
            [
                f"{folder}/{n}.csv"
                for folder in (PRINTED, REPRODUCED)
                for n in ("findings", "claims")
            ],
        ),
    ]
    return Section("audit", "Audit ledger", body)


def counts(findings: Sequence[Mapping[str, str]]) -> str:
    """'2 contradictions, 1 discrepancy, ...'."""
    tally = Counter(row["severity"] for row in findings)
    names = {
        Severity.CONTRADICTION: ("contradiction", "contradictions"),
        Severity.DISCREPANCY: ("discrepancy", "discrepancies"),
        Severity.CAUTION: ("caution", "cautions"),
        Severity.INFO: ("recovered fact", "recovered facts"),
    }
    return ", ".join(f"{tally[s.value]} {names[s][tally[s.value] != 1]}" for s in Severity)


def _summary(findings: Sequence[Mapping[str, str]], claims: Sequence[Mapping[str, str]]) -> str:
    verdicts = Counter(row["verdict"] for row in claims)
    listed = "; ".join(f"{v.value}: {verdicts[v.value]}" for v in Verdict if verdicts[v.value])
    return f"{counts(findings)}. Verdicts on {len(claims)} claims: {listed}."


def _second(results: Results) -> dict[str, Mapping[str, str]]:
    name = f"{REPRODUCED}/claims.csv"
    return {row["id"]: row for row in results.rows(name)} if results.has(name) else {}


def _second_report(results: Results) -> list[Content]:
    name = f"{REPRODUCED}/report.html"
    if not results.has(name):
        return ["; verdicts from this run's own tables were not made."]
    return ["; ", link(results, name, "another"), " adds verdicts from this run's own tables."]


def _ledger(claims: Sequence[Mapping[str, str]], second: Mapping[str, Mapping[str, str]]) -> Html:
    """Every claim with its verdict on the printed numbers and, where made, on this run's."""
    items = []
    for claim in claims:
        verdicts: list[Content] = [
            el("span", chip(claim["verdict"], _CSS.get(claim["verdict"], "info")))
        ]
        found = second.get(claim["id"])
        if found is not None:
            verdict = f"this run: {found['reproduced']}"
            detail = found["reproduction_detail"]
            verdicts.append(fold(verdict, el("small", detail)) if detail else el("span", verdict))
        text = el("div", claim["statement"], el("small", claim["where"]))
        identity = el("strong", claim["id"])
        items.append(el("li", identity, text, el("div", verdicts, class_="verdicts")))
    return el("ul", items, class_="ledger")


def _findings(findings: Sequence[Mapping[str, str]], severity: str) -> Html:
    own = [row for row in findings if row["severity"] == severity]
    if not own:
        return Html()
    items = [[el("strong", row["id"]), " ", row["statement"]] for row in own]
    serious = severity == Severity.CONTRADICTION.value
    return fold(f"{_TITLES[severity]} ({len(own)})", bullets(items), open_=serious)
