"""A paper as data: its printed cells, its protocol, its claims.

`read_paper(folder)` reads `protocol.yaml`, `claims.yaml` and the CSV files the protocol names, and
refuses whatever it cannot use with one line that names file, row and column. The formats are
described in `docs/reading_the_audit.md`; nothing in here knows any particular paper.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lopd_repro.audit.printed import Printed, Rounding, parse_printed
from lopd_repro.errors import UserError

COLUMNS = {
    "scores": ("backbone", "method", "metric", "value", "read_from"),
    "points": ("panel", "series", "x", "y", "read_from"),
    "settings": ("setting", "scope", "value", "unit", "read_from"),
}
KEYS = {
    "scores": ("backbone", "method", "metric"),
    "points": ("series", "x"),
    "settings": ("setting", "scope"),
}
VALUE_COLUMN = {"scores": "value", "points": "y", "settings": "value"}
METRIC_KINDS = ("proportion", "bounded_mean", "average", "quantity")
CLAIM_KINDS = (
    "cell",
    "difference",
    "ordering",
    "arithmetic",
    "count",
    "best",
    "gain_range",
    "trend",
    "budget",
    "procedure",
)


@dataclass(frozen=True)
class Cell:
    """One printed value and where it stands."""

    file: str
    row: int
    key: tuple[str, ...]
    printed: Printed
    read_from: str
    mark: str = ""
    unit: str = ""

    @property
    def ref(self) -> str:
        """The name by which claims call the cell, such as table1[Qwen3-4B,LOPD,bfcl_avg]."""
        return f"{self.file}[{','.join(self.key)}]"


@dataclass(frozen=True)
class Metric:
    """How one column of scores is formed."""

    name: str
    title: str
    kind: str
    scale: int = 100
    """What a perfect score prints as: 100 for percentages, 1 for shares."""
    higher_is_better: bool = True
    items: int | None = None
    repeats: int | None = None
    rounding: Rounding | None = None
    decimals: int | None = None
    parts: tuple[str, ...] = ()
    weights: str = "unstated"
    floor: float | None = None
    floor_source: str = ""
    ceiling_items: int | None = None
    ceiling_source: str = ""
    margin: float | None = None
    """Equivalence margin, in printed units, for the verdict on reproduced results."""

    @property
    def is_score(self) -> bool:
        """Whether the metric is bounded by 0 and `scale`."""
        return self.kind != "quantity"


@dataclass(frozen=True)
class Table:
    """One CSV file."""

    name: str
    kind: str
    title: str
    cells: tuple[Cell, ...]
    mirrors: tuple[str, ...] = ()
    other_reading: str = ""

    def backbones(self) -> list[str]:
        """Backbones of a score table, in printed order."""
        return list(dict.fromkeys(cell.key[0] for cell in self.cells))

    def methods(self) -> list[str]:
        """Methods of a score table, in printed order."""
        return list(dict.fromkeys(cell.key[1] for cell in self.cells))

    def metrics(self) -> list[str]:
        """Metrics of a score table, in printed order."""
        return list(dict.fromkeys(cell.key[2] for cell in self.cells))

    def column(self, metric: str) -> list[Cell]:
        """All cells of one metric, in printed order."""
        return [cell for cell in self.cells if cell.key[2] == metric]


def short_title(table: Table) -> str:
    """The part of a table's title before its colon: 'Table 1'."""
    return table.title.partition(":")[0]


@dataclass(frozen=True)
class Claim:
    """One quantitative claim: `fields` holds what its kind needs."""

    id: str
    where: str
    kind: str
    statement: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """Comparisons that the paper makes as one: a method against all others on some columns."""

    id: str
    title: str
    table_metrics: tuple[tuple[str, str], ...]
    method: str
    baseline: str
    trained_together: tuple[tuple[str, ...], ...]
    """Groups of metrics that one trained model per backbone is scored on."""


@dataclass(frozen=True)
class Paper:
    """All that the audit is given."""

    title: str
    note: str
    tables: dict[str, Table]
    metrics: dict[str, Metric]
    claims: tuple[Claim, ...]
    families: tuple[Family, ...] = ()
    same_quantity: tuple[Mapping[str, Any], ...] = ()
    ratios: tuple[Mapping[str, Any], ...] = ()
    derived: tuple[Mapping[str, Any], ...] = ()
    evidence_scales: tuple[str, ...] = ("paper",)
    cells: dict[str, Cell] = field(default_factory=dict)

    def label(self, cell: Cell) -> str:
        """A cell's name for reading: 'Qwen3-4B LOPD, BFCL average' or 'Figure 3, margin 0.05'."""
        kind = self.tables[cell.file].kind
        if kind == "scores":
            backbone, method, metric = cell.key
            return f"{backbone} {method}, {self.metrics[metric].title}"
        return f"{short_title(self.tables[cell.file])}, {' '.join(cell.key)}"

    def score_tables(self) -> list[Table]:
        """Primary score tables: those that do not merely repeat another."""
        return [t for t in self.tables.values() if t.kind == "scores" and not t.mirrors]


def make_paper(**fields: Any) -> Paper:
    """A `Paper` with its index of cells filled in."""
    cells: dict[str, Cell] = {}
    for table in fields["tables"].values():
        cells.update((cell.ref, cell) for cell in table.cells)
    return Paper(**fields, cells=cells)


def input_files(folder: Path) -> list[Path]:
    """The files that `read_paper` looks at, for build rules."""
    return sorted([*folder.glob("*.csv"), folder / "protocol.yaml", folder / "claims.yaml"])


def read_paper(folder: Path) -> Paper:
    """Read and check a paper's folder; `UserError` for anything unusable."""
    protocol_file = folder / "protocol.yaml"
    protocol = _read_yaml(protocol_file)
    _known(
        protocol,
        "paper tables metrics families same_quantity ratios derived evidence_scales",
        f"{protocol_file}",
    )
    about = protocol.get("paper", {})
    metrics = {
        name: _metric(name, dict(entry), protocol_file)
        for name, entry in _mapping(protocol, "metrics", protocol_file).items()
    }
    for metric in metrics.values():
        for part in metric.parts:
            if part not in metrics:
                raise UserError(f"{protocol_file}: metric {metric.name}: unknown part {part!r}")
    tables = {
        name: _table(folder, name, dict(entry), metrics, protocol_file)
        for name, entry in _mapping(protocol, "tables", protocol_file).items()
    }
    for table in tables.values():
        for mirrored in table.mirrors:
            if mirrored not in tables:
                raise UserError(f"{protocol_file}: table {table.name}: mirrors unknown {mirrored}")
    return make_paper(
        title=str(about.get("title", folder.name)),
        note=str(about.get("note", "")),
        tables=tables,
        metrics=metrics,
        claims=_claims(folder / "claims.yaml"),
        families=tuple(
            _family(dict(entry), tables, metrics, protocol_file)
            for entry in protocol.get("families", [])
        ),
        same_quantity=tuple(protocol.get("same_quantity", [])),
        ratios=tuple(protocol.get("ratios", [])),
        derived=tuple(protocol.get("derived", [])),
        evidence_scales=tuple(protocol.get("evidence_scales", ["paper"])),
    )


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: expected a mapping at the top")
    return value


def _mapping(parent: Mapping[str, Any], name: str, path: Path) -> dict[str, dict[str, Any]]:
    value = parent.get(name)
    if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
        raise UserError(f"{path}: {name}: expected a mapping of mappings")
    return value


def _known(entry: Iterable[str], allowed: str, where: str) -> None:
    unknown = sorted(set(entry) - set(allowed.split()))
    if unknown:
        names = ", ".join(allowed.split())
        raise UserError(f"{where}: unknown key {unknown[0]!r}; known are {names}")


def _metric(name: str, entry: dict[str, Any], path: Path) -> Metric:
    where = f"{path}: metric {name}"
    allowed = (
        "title kind scale direction items repeats rounding decimals parts weights "
        "floor floor_source ceiling_items ceiling_source margin"
    )
    _known(entry, allowed, where)
    kind = entry.pop("kind", None)
    if kind not in METRIC_KINDS:
        raise UserError(f"{where}: kind is {kind!r}; one of {', '.join(METRIC_KINDS)}")
    direction = entry.pop("direction", "higher")
    if direction not in ("higher", "lower"):
        raise UserError(f"{where}: direction is {direction!r}; higher or lower")
    rounding = entry.pop("rounding", None)
    if rounding is not None:
        try:
            rounding = Rounding(rounding)
        except ValueError:
            names = ", ".join(mode.value for mode in Rounding)
            raise UserError(f"{where}: rounding is {rounding!r}; one of {names}") from None
    for count in ("items", "repeats"):
        value = entry.get(count)
        if value is not None and not (isinstance(value, int) and value > 0):
            raise UserError(f"{where}: {count} is {value!r}; a whole number above 0")
    if kind in ("proportion", "bounded_mean") and entry.get("items") is None:
        raise UserError(f"{where}: kind {kind} needs items")
    if kind == "average" and not entry.get("parts"):
        raise UserError(f"{where}: kind average needs parts")
    weights = entry.get("weights", "unstated")
    if weights not in ("unstated", "items", "equal"):
        raise UserError(f"{where}: weights is {weights!r}; items, equal or unstated")
    parts = tuple(entry.pop("parts", ()))
    title = str(entry.pop("title", name))
    return Metric(
        name=name,
        title=title,
        kind=kind,
        higher_is_better=direction == "higher",
        rounding=rounding,
        parts=parts,
        **entry,
    )


def _table(
    folder: Path, name: str, entry: dict[str, Any], metrics: dict[str, Metric], protocol: Path
) -> Table:
    _known(entry, "file kind title mirrors other_reading", f"{protocol}: table {name}")
    kind = entry.get("kind")
    if kind not in COLUMNS:
        raise UserError(f"{protocol}: table {name}: kind is {kind!r}; one of {', '.join(COLUMNS)}")
    path = folder / str(entry.get("file", f"{name}.csv"))
    try:
        with path.open(newline="", encoding="utf-8") as handle:
            reader = csv.reader(handle, strict=True)
            rows = [row for row in reader if row]
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a readable CSV file ({error})") from None
    header = rows[0] if rows else []
    wanted = COLUMNS[kind]
    for column in header:
        if column not in wanted and not (kind == "scores" and column == "mark"):
            raise UserError(f"{path}, row 1: unknown column {column!r}; known are {_join(wanted)}")
    for column in wanted:
        if column not in header:
            raise UserError(f"{path}, row 1: column {column!r} is missing")
    cells: dict[tuple[str, ...], Cell] = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise UserError(
                f"{path}, row {number}: {len(row)} fields, the header has {len(header)}"
            )
        cell = _cell(path, number, name, kind, dict(zip(header, row, strict=True)), metrics)
        if cell.key in cells:
            raise UserError(
                f"{path}, row {number}, column {KEYS[kind][0]}: {cell.ref} stands in row "
                f"{cells[cell.key].row} already"
            )
        cells[cell.key] = cell
    return Table(
        name=name,
        kind=kind,
        title=str(entry.get("title", name)),
        cells=tuple(cells.values()),
        mirrors=tuple(entry.get("mirrors", ())),
        other_reading=str(entry.get("other_reading", "")),
    )


def _cell(
    path: Path, number: int, table: str, kind: str, row: dict[str, str], metrics: dict[str, Metric]
) -> Cell:
    value_column = VALUE_COLUMN[kind]
    where = f"{path}, row {number}"
    try:
        printed = parse_printed(row[value_column])
    except ValueError as error:
        raise UserError(f"{where}, column {value_column}: {error}") from None
    if not row["read_from"].strip():
        raise UserError(f"{where}, column read_from: empty; say where the value was read")
    if kind == "scores":
        metric = metrics.get(row["metric"])
        if metric is None:
            raise UserError(
                f"{where}, column metric: {row['metric']!r} is not described in protocol.yaml"
            )
        if not printed.exact:
            raise UserError(f"{where}, column value: {printed.text!r} is not a plain number")
        top = metric.scale if metric.is_score else None
        if printed.face < 0 or (top is not None and printed.face > top):
            allowed = f"between 0 and {top}" if top is not None else "0 or more"
            raise UserError(
                f"{where}, column value: {printed.text} is out of range for {metric.name}, "
                f"which is {allowed}"
            )
    key = tuple(row[column] for column in KEYS[kind])
    for column, part in zip(KEYS[kind], key, strict=True):
        if not part or any(mark in part for mark in "[],"):
            raise UserError(f"{where}, column {column}: {part!r} is empty or holds one of [ ] ,")
    mark = row.get("mark", "")
    if mark not in ("", "best", "second"):
        raise UserError(f"{where}, column mark: {mark!r}; best, second or empty")
    return Cell(table, number, key, printed, row["read_from"], mark, row.get("unit", ""))


def _join(names: Iterable[str]) -> str:
    return ", ".join(names)


def _family(
    entry: dict[str, Any], tables: dict[str, Table], metrics: dict[str, Metric], path: Path
) -> Family:
    where = f"{path}: family {entry.get('id')!r}"
    _known(entry, "id title columns method baseline trained_together", where)
    columns = []
    for table, names in dict(entry.get("columns", {})).items():
        if table not in tables:
            raise UserError(f"{where}: unknown table {table!r}")
        for name in names:
            if name not in metrics or not tables[table].column(name):
                raise UserError(f"{where}: table {table} has no column {name!r}")
            columns.append((table, name))
        for role in ("method", "baseline"):
            if entry.get(role) not in tables[table].methods():
                raise UserError(f"{where}: {role} {entry.get(role)!r} is not in {table}")
    return Family(
        id=str(entry["id"]),
        title=str(entry.get("title", entry["id"])),
        table_metrics=tuple(columns),
        method=entry["method"],
        baseline=entry["baseline"],
        trained_together=tuple(tuple(group) for group in entry.get("trained_together", ())),
    )


def _claims(path: Path) -> tuple[Claim, ...]:
    document = _read_yaml(path)
    _known(document, "claims", str(path))
    claims: dict[str, Claim] = {}
    for place, entry in enumerate(document.get("claims", []), start=1):
        if not isinstance(entry, dict) or not all(
            isinstance(entry.get(name), str) for name in ("id", "where", "kind", "statement")
        ):
            raise UserError(f"{path}: claim {place}: needs id, where, kind and statement as text")
        claim = Claim(
            entry["id"],
            entry["where"],
            entry["kind"],
            entry["statement"],
            {k: v for k, v in entry.items() if k not in ("id", "where", "kind", "statement")},
        )
        if claim.kind not in CLAIM_KINDS:
            known = ", ".join(CLAIM_KINDS)
            raise UserError(f"{path}: claim {claim.id}: kind is {claim.kind!r}; one of {known}")
        if claim.id in claims:
            raise UserError(f"{path}: claim {claim.id} stands twice")
        claims[claim.id] = claim
    return tuple(claims.values())
