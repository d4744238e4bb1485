"""Bad input is one clear line that names file, row and column."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from audit_paper_helpers import audit, change, invented_copy

from lopd_repro.errors import UserError

BAD = [
    (
        "scores.csv",
        "Ant,Old,easy,58.3",
        "Ant,Old,easy,158.3",
        r"scores\.csv, row 5, column value: 158\.3 is out of range for easy, .* between 0 and 100",
    ),
    ("scores.csv", "Ant,Old,easy,58.3", "Ant,Old,easy,-5", r"row 5, column value: -5 is out of"),
    ("scores.csv", "Ant,Old,easy,58.3", "Ant,Old,easy,58,3", r"scores\.csv, row 5: 7 fields"),
    ("scores.csv", "Ant,Old,easy,58.3", "Ant,Old,easy,high", r"row 5, column value: 'high' is not"),
    ("scores.csv", "Ant,Old,easy,58.3", "Ant,Old,easy,>58", r"row 5, column value: '>58' is not"),
    ("scores.csv", "Ant,Old,easy,58.3", "Ant,Old,medium,58.3", r"row 5, column metric: 'medium'"),
    ("scores.csv", "Ant,Old,easy,58.3", "Ant,Plain,easy,58.3", r"row 5, column .*in row 2 already"),
    ("scores.csv", "Ant,Old,easy,58.3,table", "Ant,Old,easy,58.3,", r"row 5, column read_from"),
    ("scores.csv", "58.3,table,second", "58.3,table,third", r"row 5, column mark: 'third'"),
    ("scores.csv", "Ant,Old,easy,58.3", ",Old,easy,58.3", r"row 5, column backbone"),
    ("scores.csv", "read_from,mark", "read_from,colour", r"row 1: unknown column 'colour'"),
    (
        "scores.csv",
        "value,read_from",
        "value",
        r"scores\.csv, row 1: column 'read_from' is missing",
    ),
    ("curve.csv", "New,20,0.550", "New,20,0.5-0.4", r"curve\.csv, row 3, column y: .* backwards"),
    (
        "claims.yaml",
        "scores[Ant,New,mean] -",
        "scores[Ant,New,men] -",
        r"claim K2: cell scores.*men",
    ),
    ("claims.yaml", "rivals:\n", "rival:\n", r"claim K4: needs rivals"),
    ("claims.yaml", "kind: budget", "kind: guess", r"claim K4: kind is 'guess'"),
    ("claims.yaml", "id: K2", "id: K1", r"claims\.yaml: claim K1 stands twice"),
    ("claims.yaml", "chosen_on: the hard set", "chose: it", r"claim K5: needs chosen_on"),
    (
        "claims.yaml",
        "columns: {scores: [mean]}\n    stated",
        "columns: {a: [mean]}\n    stated",
        "K1",
    ),
    ("claims.yaml", "claims:", "claims: [", r"claims\.yaml: not valid YAML"),
    ("protocol.yaml", "items: 12", "item: 12", r"metric easy: unknown key 'item'"),
    ("protocol.yaml", "items: 12", "items: 0", r"metric easy: items is 0"),
    ("protocol.yaml", "kind: proportion, items: 12", "kind: share, items: 12", r"kind is 'share'"),
    ("protocol.yaml", "parts: [easy, hard]", "parts: [easy, harder]", r"unknown part 'harder'"),
    ("protocol.yaml", "baseline: Plain", "baseline: Plane", r"baseline 'Plane' is not in scores"),
    ("protocol.yaml", "curve[New,100] * 100", "curve[New,200] * 100", r"protocol\.yaml: same_quan"),
    (
        "protocol.yaml",
        "title: released code,",
        "title: x, file: no.csv,",
        r"no\.csv: cannot be read",
    ),
]


@pytest.mark.parametrize(("file", "old", "new", "message"), BAD)
def test_bad_input(tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    folder = invented_copy(tmp_path)
    change(folder, file, old, new)
    with pytest.raises(UserError) as error:
        audit(folder)
    assert re.search(message, str(error.value)), str(error.value)
    assert "\n" not in str(error.value)


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"protocol\.yaml: cannot be read"):
        audit(tmp_path)
