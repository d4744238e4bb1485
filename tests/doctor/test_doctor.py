"""The doctor: what is there, what the workflow sees to, what stops it."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from lopd_repro.cli import main
from lopd_repro.doctor import checks
from lopd_repro.fetch.registry import read_source
from lopd_repro.workflow.configuration import load
from lopd_repro.workflow.slices import domains

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def paper() -> dict[str, dict[str, Any]]:
    return domains(load([ROOT / "config/paper.yaml"]))


def test_the_default_scale_can_run_and_the_papers_cannot_without_gpus(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checks, "gpus", lambda: [])
    command = ["doctor", "--no-network", "--json", "--config"]
    assert main([*command, str(ROOT / "config/tiny.yaml")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["can_run"] and not any(f["topic"] == "data" for f in said["findings"])
    assert main([*command, str(ROOT / "config/paper.yaml")]) == 1
    said = json.loads(capsys.readouterr().out)
    problems = [f["text"] for f in said["findings"] if f["state"] == "problem"]
    assert any("asks for cuda" in text for text in problems)


def test_packages_outside_the_lock_are_asked_for_where_they_are_needed(
    paper: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_version", {"pyarrow": "26.0"}.get)
    found = {f.text.split(" ")[0]: f.state for f in checks.further_packages(paper)}
    assert found == {"pyarrow": "ok", "sentence-transformers": "problem"}
    assert checks.further_packages(domains(load([ROOT / "config/tiny.yaml"]))) == []


def test_memory_is_counted_for_the_largest_backbone(paper: dict[str, dict[str, Any]]) -> None:
    # 8.2e9 weights of Qwen3-8B, 16 bytes for the policy and 4 for the teacher.
    needed = checks._largest_bytes(paper)
    assert needed == pytest.approx(20 * 8.19e9, rel=0.01)


def test_gpus_are_those_of_the_drivers_tool(
    paper: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 143771'\necho 'NVIDIA H200, 143771'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert checks.gpus() == [("NVIDIA H200", 143771 * 2**20)] * 2
    # Two of 140 GiB hold the 153 GiB of Qwen3-8B's training state, one does not.
    (finding,) = checks.devices(paper)
    assert finding.state == "ok" and "2 GPU(s): NVIDIA H200 140 GiB" in finding.text
    monkeypatch.setattr(checks, "gpus", lambda: [("one", 141e9)])
    assert checks.devices(paper)[0].state == "problem"


def test_a_source_that_is_missing_is_something_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    values = {
        "kind": "hub-dataset", "repository": "some/one", "revision": "0" * 40, "about": "",
        "about_bytes": 2e9, "licence": "MIT",
    }  # fmt: skip
    finding = checks.fetched_source(read_source("one", values), tmp_path)
    assert (finding.state, finding.text) == ("todo", "one: 2 GB, licence: MIT")


def test_keys_are_asked_for_by_name(
    paper: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (finding,) = checks.keys(paper)
    assert finding.state == "problem" and "OPENAI_API_KEY is not set" in finding.text
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    (finding,) = checks.keys(paper)
    assert finding.state == "ok" and "secret" not in finding.text


def test_hosts_are_asked(paper: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        paper["tool_use"]["benchmarks"]["acebench"]["user"]["url"] = f"http://127.0.0.1:{port}/v1"
        (finding,) = checks.hosts({"tool_use": paper["tool_use"]}, [])
        assert finding.state == "ok"
    (finding,) = checks.hosts({"tool_use": paper["tool_use"]}, [])
    assert finding.state == "problem" and "does not answer (endpoint)" in finding.text


def test_environments_and_interpreters(
    paper: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = {f.text: f.state for f in checks.environments(paper)}
    assert found[".environments/bfcl-v3"] == found[".environments/acebench"] == "todo"
    assert found[".environments/vllm"] == "todo"
    (tmp_path / ".environments/acebench").mkdir(parents=True)
    (tmp_path / ".environments/acebench/installed").touch()
    assert checks.Finding("ok", "environment", ".environments/acebench") in checks.environments(
        paper
    )


def test_vllm_of_ones_own_must_be_there(
    paper: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for own in paper.values():
        own["serve"]["python"] = "elsewhere/bin/python"
    found = {f.text: f.state for f in checks.environments(paper)}
    assert found["serve.python: elsewhere/bin/python is not there"] == "problem"
    assert found["engine.name: vllm is not installed in this environment"] == "problem"
    assert ".environments/vllm" not in found


def test_disk_that_is_too_small_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source = read_source("x", {"kind": "hub-model", "about": "", "about_bytes": 5e9})
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 4e9}))
    finding = checks.disk({"results": "/nowhere/results"}, [source])
    assert finding.state == "problem" and "to fetch: 5 GB" in finding.text
