"""Fetching against a stand-in hub: pins, locks, interruption, folders, cache, what is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_server import COMMIT, Hub, hub

from lopd_repro.cli import main
from lopd_repro.errors import UserError
from lopd_repro.fetch.checks import rows
from lopd_repro.fetch.place import Options, fetch
from lopd_repro.fetch.registry import MODEL_PATTERNS, Pin, find, read_source, registry

ROOT = Path(__file__).resolve().parents[2]
TABLE = json.dumps([{"n": i} for i in range(5)]).encode()
SOURCE = {
    "kind": "hub-dataset",
    "repository": "someone/table",
    "revision": COMMIT,
    "about": "five rows",
    "licence": "CC0",
    "patterns": ["*.json"],
}


@pytest.fixture
def server() -> Iterator[Hub]:
    with hub() as running:
        running.repositories["datasets", "someone/table"] = {
            "rows.json": TABLE,
            "readme.md": b"not wanted",
        }
        yield running


class Fetcher:
    """Fetches with cache and data folder of its own; 0 and what was said, or 2 and the error."""

    def __init__(self, folder: Path, server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data = folder / "data"
        self._patch = monkeypatch
        # As HF_ENDPOINT and HF_HOME do where the library is imported after they are set.
        self._set("ENDPOINT", server.url)
        address = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        self._set("HUGGINGFACE_CO_URL_TEMPLATE", address)
        self._set("HF_HUB_DISABLE_XET", True)
        self.cache(folder / "hf")

    def cache(self, folder: Path) -> None:
        self._set("HF_HUB_CACHE", str(folder))

    def _set(self, name: str, value: Any) -> None:
        self._patch.setattr(f"huggingface_hub.constants.{name}", value)

    def __call__(self, values: dict[str, Any] | None = None, **options: Any) -> tuple[int, str]:
        said: list[str] = []
        source = read_source("table", values or SOURCE)
        try:
            fetch(source, Options(self.data, **options), said.append)
        except UserError as error:
            return 2, "\n".join([*said, f"error: {error}"])
        return 0, "\n".join(said)


@pytest.fixture
def run(tmp_path: Path, server: Hub, monkeypatch: pytest.MonkeyPatch) -> Fetcher:
    return Fetcher(tmp_path, server, monkeypatch)


def pinned(**pin: Any) -> dict[str, Any]:
    return {**SOURCE, "files": {"rows.json": pin}}


def test_a_fetch_is_announced_checked_linked_and_locked(run: Fetcher, server: Hub) -> None:
    code, said = run(pinned(rows=5))
    assert code == 0
    # Licence and size come before the first byte.
    assert said.index("licence: CC0") < said.index(f"1 files, {len(TABLE)} bytes, less")
    assert server.downloads() == ["rows.json"]
    placed = run.data / "table" / "rows.json"
    assert placed.is_symlink() and placed.read_bytes() == TABLE
    entry = json.loads((run.data / "sources.lock.json").read_text())["table"]
    digest = hashlib.sha256(TABLE).hexdigest()
    assert entry["revision"] == COMMIT
    assert entry["files"] == {"rows.json": {"bytes": len(TABLE), "sha256": digest, "rows": 5}}
    asked = len(server.asked)
    code, said = run(pinned(rows=5))
    assert code == 0 and "already" in said and len(server.asked) == asked


@pytest.mark.parametrize(
    "pin, named",
    [({"sha256": "0" * 64}, "sha256"), ({"bytes": 3}, "bytes"), ({"rows": 4}, "rows 5")],
)
def test_another_file_than_the_pinned_one_is_refused(
    run: Fetcher, pin: dict[str, Any], named: str
) -> None:
    code, said = run(pinned(**pin))
    assert code == 2
    errors = [line for line in said.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and named in errors[0] and "sources.yaml" in errors[0]
    assert not (run.data / "table").exists() and not (run.data / "sources.lock.json").exists()


def test_what_the_hub_says_is_compared_before_anything_is_downloaded(
    run: Fetcher, server: Hub
) -> None:
    assert run(pinned(sha256="0" * 64))[0] == 2
    assert server.downloads() == []


def test_later_fetches_are_held_to_the_first(run: Fetcher, server: Hub, tmp_path: Path) -> None:
    assert run()[0] == 0
    server.repositories["datasets", "someone/table"]["rows.json"] = TABLE.replace(b"0", b"9", 1)
    run.cache(tmp_path / "another")
    (run.data / "table" / "fetched.json").unlink()
    code, said = run()
    assert code == 2 and "sources.lock.json" in said


def test_an_interrupted_fetch_asks_for_the_missing_files_only(run: Fetcher, server: Hub) -> None:
    files = {f"part{i}.json": json.dumps(list(range(50 + i))).encode() for i in range(3)}
    server.repositories["datasets", "someone/table"] = files
    server.cut = "part1.json"
    code, said = run()
    assert code == 2 and said.count("error:") == 1
    assert not (run.data / "table").exists()
    kept = set(server.downloads()) - {"part1.json"}
    server.cut, before = "", len(server.downloads())
    assert run()[0] == 0
    again = server.downloads()[before:]
    assert "part1.json" in again and not kept & set(again)
    assert {p.name for p in (run.data / "table").iterdir()} == {*files, "fetched.json"}


def test_a_broken_connection_is_taken_up_where_it_broke(
    run: Fetcher, server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 5)
    server.cut_once = "rows.json"
    assert run()[0] == 0
    ranges = [span for verb, path, span in server.asked if verb == "GET" and "rows.json" in path]
    assert ranges == ["", f"bytes={len(TABLE) // 2}-"]


def test_offline_it_comes_from_the_cache_or_says_what_is_missing(
    run: Fetcher, server: Hub, tmp_path: Path
) -> None:
    code, said = run(offline=True)
    assert code == 2 and "--offline" in said and server.asked == []
    assert run()[0] == 0
    asked = len(server.asked)
    run.data = tmp_path / "other"
    code, said = run(offline=True)
    assert code == 0 and "in the Hugging Face cache" in said and len(server.asked) == asked


def test_a_given_folder_is_held_to_the_same_pins(run: Fetcher, server: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "rows.json").write_bytes(TABLE)
    assert run(pinned(rows=5), given=folder)[0] == 0
    assert server.asked == []
    code, said = run(pinned(rows=4), given=folder)
    assert code == 2 and "rows 5, sources.yaml has 4" in said
    code, said = run(pinned(rows=4), given=tmp_path / "nowhere")
    assert code == 2 and "no such folder" in said


def test_a_model_without_all_its_shards_is_refused(run: Fetcher, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-1.safetensors").write_bytes(b"x")
    model = {**SOURCE, "kind": "hub-model", "patterns": list(MODEL_PATTERNS)}
    code, said = run(model, given=folder)
    assert code == 2 and "has no model-2.safetensors" in said


def test_an_edited_file_is_found(run: Fetcher, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "rows.json").write_bytes(TABLE)
    assert run(given=folder)[0] == 0
    (folder / "rows.json").write_bytes(TABLE.replace(b"3", b"7"))
    assert run()[0] == 0  # of the same size: only --check reads it again
    code, said = run(check=True)
    assert code == 2 and "sha256" in said


def test_the_command_line_end_to_end(server: Hub, tmp_path: Path) -> None:
    """HF_ENDPOINT and HF_HOME as a user sets them; a model by name and commit, then as backbone."""
    from safetensors.numpy import save

    weights = save({"a": np.zeros((3, 4), np.float32), "b": np.zeros(5, np.float32)})
    files = {"config.json": b'{"model_type": "qwen3"}', "model.safetensors": weights}
    server.repositories["models", "org/model"] = files
    environment = {
        **os.environ, "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_XET": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "lopd_repro", "fetch", "org/model", "--revision", COMMIT]
    done = subprocess.run(
        command, cwd=tmp_path, env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    fetched = tmp_path / "data" / f"org--model-{COMMIT[:12]}"
    out, report = tmp_path / "model", tmp_path / "report.json"
    assert main(
        ["import-hub", "--fetched", str(fetched), "--out", str(out), "--report", str(report)]
    ) == 0  # fmt: skip
    assert (out / "model.safetensors").read_bytes() == weights
    assert json.loads(report.read_text()) == {
        "source": f"org--model-{COMMIT[:12]}", "revision": COMMIT, "model_type": "qwen3",
        "parameters": 17,
    }  # fmt: skip


def test_an_unknown_repository_is_one_line(run: Fetcher) -> None:
    code, said = run({**SOURCE, "repository": "someone/else"})
    assert code == 2 and said.count("error:") == 1 and "--from FOLDER" in said


def test_a_packed_file_comes_from_a_folder_unpacked(run: Fetcher, tmp_path: Path) -> None:
    lines = b'{"a": 1}\n{"a": 2}\n'
    source = {
        "kind": "url", "url": "https://example.org/Some.jsonl.gz", "about": "two rows",
        "unpack": "Some.jsonl",
        "files": {"Some.jsonl": {"md5": hashlib.md5(lines).hexdigest(), "rows": 2}},
    }  # fmt: skip
    (tmp_path / "Some.jsonl.gz").write_bytes(gzip.compress(lines))
    assert run(source, given=tmp_path)[0] == 0
    placed = run.data / "table" / "Some.jsonl"
    assert placed.read_bytes() == lines and not placed.is_symlink()
    (tmp_path / "Some.jsonl.gz").write_bytes(gzip.compress(lines + lines))
    code, said = run(source, given=tmp_path)
    assert code == 2 and "rows 4" in said


def test_rows_by_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"x": 1, "y": 2}')
    (tmp_path / "b.jsonl").write_text('{"x": 1}\n\n{"x": 2}\n')
    (tmp_path / "c.txt").write_text("text")
    assert [rows(tmp_path / name, name) for name in ("a.json", "b.jsonl", "c.txt")] == [2, 2, None]
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"x": [1, 2, 3]}), tmp_path / "d.parquet")
    assert rows(tmp_path / "d.parquet", "d.parquet") == 3
    (tmp_path / "d.parquet").write_bytes(b"PAR1 broken")
    with pytest.raises(UserError, match=r"as \.parquet"):
        rows(tmp_path / "d.parquet", "d.parquet")


def test_the_registry_holds_the_papers_sources() -> None:
    found = registry()
    assert found["envscaler-environments"].files["191_env_metadata_processed.json"].rows == 191
    scenarios = found["envscaler-scenarios"].files["envscaler_rl_scenario_metadata.json"]
    assert scenarios.rows == 2550
    assert found["humaneval-plus"].files["HumanEvalPlus.jsonl"].rows == 164
    assert found["mbpp-plus"].files["MbppPlus.jsonl"].rows == 378
    # The sum of the releases' files, v6.
    assert sum(pin.rows or 0 for pin in found["livecodebench-data"].files.values()) == 1055
    pinned_hub = [s for s in found.values() if s.kind.startswith("hub") and "lopd" not in s.name]
    assert len(pinned_hub) == 9 and all(len(s.revision or "") == 40 for s in pinned_hub)


def test_other_models_need_a_commit() -> None:
    with pytest.raises(UserError, match="40 hexadecimal digits"):
        find("org/model", "main")
    with pytest.raises(UserError, match="unknown, allowed"):
        find("nothing")
    source = find("org/model", COMMIT)
    assert source.request == ["org/model", "--revision", COMMIT]
    assert source.patterns == MODEL_PATTERNS
    with pytest.raises(UserError, match="registered is"):
        find("qwen3-4b", COMMIT)


def test_a_wrong_kind_is_refused() -> None:
    with pytest.raises(UserError, match="kind: found 'ftp'"):
        read_source("x", {"kind": "ftp", "about": ""})
    assert Pin().sha256 is None


def test_sources_of_ones_own_join_or_replace_the_registered_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No host is asked for what a folder has.
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    (tmp_path / "here").mkdir()
    (tmp_path / "here/rows.json").write_bytes(TABLE)
    entry = {"kind": "hub-dataset", "repository": "a/b", "patterns": ["*.json"], "folder": "here"}
    listed = tmp_path / "own.yaml"
    listed.write_text(json.dumps({"mine": entry, "deepcoder-taco": entry}))
    own = registry(str(listed))
    assert set(own) - set(registry()) == {"mine"}
    # Whole: nothing of the registered entry is left.
    assert own["deepcoder-taco"].revision is None and not own["deepcoder-taco"].files
    assert find("qwen3-4b", more=str(listed)) == registry()["qwen3-4b"]
    command = ["fetch", *own["mine"].request, "--data", str(tmp_path / "data")]
    assert command[2:4] == ["--sources", str(listed)]
    assert main(command) == 0
    assert (tmp_path / "data/mine/rows.json").read_bytes() == TABLE
    # Another place of the same files is nothing new to fetch.
    listed.write_text(json.dumps({"mine": {**entry, "folder": "there"}}))
    registry.cache_clear()
    assert registry(str(listed))["mine"].as_json() == own["mine"].as_json()
    listed.write_text("[1]")
    registry.cache_clear()
    capsys.readouterr()
    assert main(command) == 2
    assert "holds no mapping" in capsys.readouterr().err
    assert main(["fetch", "mine", "--sources", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: cannot be read" in capsys.readouterr().err
