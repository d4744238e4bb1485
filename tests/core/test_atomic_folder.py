"""A folder is replaced whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from lopd_repro.files import atomic_folder


def test_the_new_folder_takes_the_old_ones_place(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    for text in ("old", "new"):
        with atomic_folder(target) as folder:
            (folder / text).write_text(text)
    assert [p.name for p in target.iterdir()] == ["new"]
    assert [p.name for p in target.parent.iterdir()] == ["model"]
    assert target.stat().st_mode & 0o777 == 0o755


def test_after_an_error_the_old_folder_is_there_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with atomic_folder(target) as folder:
        (folder / "old").write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_folder(target) as folder:
        (folder / "half").write_text("half")
        raise KeyboardInterrupt
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    assert (target / "old").read_text() == "old"
