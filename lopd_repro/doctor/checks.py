"""The checks of `lopd-repro doctor`, one function each; none changes anything.

A finding is `ok`; `todo`, what the workflow makes or fetches by itself; `problem`, what stops it;
or `unknown`, what could not be looked at.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from lopd_repro.errors import UserError
from lopd_repro.fetch.place import placed, size_text
from lopd_repro.fetch.registry import Source
from lopd_repro.plan import shape as sizes
from lopd_repro.workflow import fetched, slices, vllm_environment
from lopd_repro.workflow.released import released

_PACKAGES = ("torch", "transformers", "snakemake", "huggingface_hub")
_ENVIRONMENTS = {
    "acebench": ".environments/acebench",
    "livecodebench": ".environments/livecodebench",
    "evalplus": ".environments/evalplus",
}
_SECONDS = 3.0


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    state: str
    topic: str
    text: str


def examine(config: Mapping[str, Any], network: bool = True) -> list[Finding]:
    """Everything, in the order in which a person would mend it."""
    domains = slices.domains(config)
    sources = fetched.needed(domains)
    data = Path(fetched.data_folder(config))
    missing = [source for source in sources.values() if not placed(source, data)]
    found = [python(), *packages(), *further_packages(domains)]
    found += devices(domains)
    found.append(disk(config, missing))
    found += [fetched_source(source, data) for source in sources.values()]
    found += released_folders(domains)
    found += environments(domains)
    found += keys(domains)
    if network:
        found += hosts(domains, missing)
    found.append(sandbox())
    return found


def python() -> Finding:
    """The interpreter, against what the project allows."""
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] < (3, 13):
        return Finding("ok", "python", version)
    return Finding("problem", "python", f"{version}, allowed: 3.11 or 3.12")


def packages() -> list[Finding]:
    """Installed versions of the packages that matter most."""
    known = {name: _version(name) for name in _PACKAGES}
    versions = [f"{name} {version}" for name, version in known.items() if version]
    lacking = [name for name, version in known.items() if not version]
    found = [Finding("ok", "packages", ", ".join(versions))] if versions else []
    return found + [Finding("problem", "packages", f"{name} is not installed") for name in lacking]


def further_packages(domains: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Packages outside the lock file that the configuration's data and retriever need."""
    needed: dict[str, str] = {}
    for own in domains.values():
        for source in fetched.task_sources(own):
            if any(name.endswith(".parquet") for name in source.files):
                needed["pyarrow"] = f"{source.name} is Parquet"
        embedder = own["bank"]["embedder"]
        if embedder.startswith(("hub:", "sentence-transformers:")):
            needed["sentence-transformers"] = f"the retriever {embedder}"
    return [
        Finding("ok", "packages", f"{name} {version} ({why})")
        if (version := _version(name))
        else Finding(
            "problem", "packages", f"{name} is not installed: pip install '.[paper]' ({why})"
        )
        for name, why in needed.items()
    ]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def devices(domains: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """GPUs and their memory, against the largest backbone as the configuration holds it."""
    wanted = {own["engine"].get("device", "cpu") for own in domains.values()}
    found = gpus()
    names = [f"{name} {memory / 2**30:.0f} GiB" for name, memory in found]
    there = f"{len(found)} GPU(s)" + (f": {', '.join(names)}" if names else "")
    if not any(str(name).startswith("cuda") for name in wanted):
        return [Finding("ok", "devices", f"{os.cpu_count()} cores; {there}, none asked for")]
    needed = _largest_bytes(domains)
    text = ""
    if needed is not None:
        text = (
            f"; the largest backbone takes about {needed / 2**30:.0f} GiB to train (weights, "
            "gradients, two moments and a frozen teacher in fp32), activations not counted"
        )
    if not found:
        asked = "the configuration asks for cuda"
        return [Finding("problem", "devices", f"{asked}, {there}{text}")]
    memory = sum(size for _, size in found)
    state = "problem" if needed is not None and needed > memory else "ok"
    return [Finding(state, "devices", there + text)]


def gpus() -> list[tuple[str, float]]:
    """Name and bytes of memory of every GPU, as the driver's own tool lists them."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.rsplit(",", 1) for line in said.splitlines() if "," in line]
    return [(name.strip(), float(memory) * 2**20) for name, memory in rows]


def _largest_bytes(domains: Mapping[str, Mapping[str, Any]]) -> float | None:
    known = yaml.safe_load(Path(sizes.__file__).with_name("assumptions.yaml").read_text())
    found = []
    for own in domains.values():
        for name, backbone in own["backbones"].items():
            try:
                shape = sizes.backbone_shape(name, backbone, known)
            except UserError:
                continue
            found.append(shape.parameters * (known["bytes_per_parameter"]["state"]["value"] + 4.0))
    return max(found, default=None)


def disk(config: Mapping[str, Any], missing: list[Source]) -> Finding:
    """Free space where results and fetched things go; `lopd-repro plan` says what results take."""
    folder = Path(config["results"]).absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    known = [source.known_bytes for source in missing if source.known_bytes]
    needed = sum(known)
    text = f"{size_text(free)} free in {folder}; to fetch: {size_text(needed)}"
    if len(known) < len(missing):
        text += f" and {len(missing) - len(known)} smaller source(s) of unknown size"
    return Finding("problem" if needed > free else "ok", "disk", text)


def fetched_source(source: Source, data: Path) -> Finding:
    """Whether a source is there, or in the Hugging Face cache, or what fetching it takes."""
    try:
        if placed(source, data):
            return Finding("ok", "data", f"{source.name} in {fetched_place(source, data)}")
    except UserError as error:
        return Finding("problem", "data", str(error))
    size = size_text(source.known_bytes) if source.known_bytes else "size unknown"
    where = "; in the Hugging Face cache" if _in_cache(source) else ""
    where = f"; in {source.folder}" if source.folder else where
    licence = source.licence.split(" (")[0]
    return Finding("todo", "data", f"{source.name}: {size}, licence: {licence}{where}")


def released_folders(domains: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Whether the folders of released checkpoints are there; fetched ones are data."""
    folders = [one.path for own in domains.values() for one in released(own) if one.path]
    return [
        Finding("ok", "data", f"released checkpoint in {folder}")
        if (Path(folder) / "config.json").is_file()
        else Finding("problem", "data", f"released checkpoint: {folder} has no config.json")
        for folder in folders
    ]


def fetched_place(source: Source, data: Path) -> str:
    """Where a source stands."""
    return source.target or str(data / source.name)


def _in_cache(source: Source) -> bool:
    from lopd_repro.fetch import hub

    return source.kind.startswith("hub") and hub.cached(source, source.revision) is not None


def environments(domains: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Environments of official packages and of vLLM."""
    found = []
    for own in domains.values():
        for name, settings in own["benchmarks"].items():
            release = settings.get("release", "v3")
            folder = f".environments/bfcl-{release}" if name == "bfcl" else _ENVIRONMENTS[name]
            named = settings.get("python") or settings.get("official", {}).get("python")
            if named:
                found.append(_interpreter(f"{name}", named))
            elif name in ("bfcl", "evalplus") or settings.get("suite", "official") == "official":
                found.append(_made(folder))
        found += _vllm(own)
    return list(dict.fromkeys(found))


def _vllm(own: Mapping[str, Any]) -> list[Finding]:
    """vLLM for the jobs that use it: in an environment that a rule makes, or where it is named."""
    serves = vllm_environment.serves_with_vllm(own)
    samples = vllm_environment.samples_with_vllm(own)
    folder = vllm_environment.made_folder(own)
    if folder:
        return [_made(folder)] if serves or samples else []
    found = []
    if serves:
        found.append(_interpreter("serve.python", own["serve"].get("python") or "python"))
    if samples and importlib.util.find_spec("vllm") is None:
        text = "engine.name: vllm is not installed in this environment"
        found.append(Finding("problem", "environment", text))
    return found


def _made(folder: str) -> Finding:
    there = (Path(folder) / "installed").is_file()
    return Finding("ok" if there else "todo", "environment", folder)


def _interpreter(what: str, path: str) -> Finding:
    there = shutil.which(path) is not None
    text = f"{what}: {path}" + ("" if there else " is not there")
    return Finding("ok" if there else "problem", "environment", text)


def endpoints(domains: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Endpoints of other models that the configuration names."""
    found: list[Mapping[str, Any]] = []
    for own in domains.values():
        if user := own["benchmarks"].get("acebench", {}).get("user"):
            found.append(user)
        if own["demonstrations"]["missing"] == "endpoint":
            found.append(own["demonstrations"]["endpoint"])
        if own["skills"].get("writer") == "endpoint":
            found.append(own["skills"]["endpoint"])
    return found


def keys(domains: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Whether the environment variables with keys are set; their values are not looked at."""
    names = {e["api_key_env"]: e["url"] for e in endpoints(domains) if e.get("api_key_env")}
    return [
        Finding("ok", "key", f"{name} is set")
        if os.environ.get(name)
        else Finding("problem", "key", f"{name} is not set; {url} needs it")
        for name, url in names.items()
    ]


def hosts(domains: Mapping[str, Mapping[str, Any]], missing: list[Source]) -> list[Finding]:
    """Whether hosts answer: of what is to be fetched, of packages, of endpoints."""
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    needed: dict[str, str] = {}
    for source in missing:
        if not source.folder and not _in_cache(source):
            needed.setdefault(hub if source.kind.startswith("hub") else source.url, "to fetch")
    for endpoint in endpoints(domains):
        needed[endpoint["url"]] = "endpoint"
    by_host: dict[tuple[str, int], str] = {}
    for url, why in needed.items():
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
        by_host.setdefault((parts.hostname or "", port), why)
    found = []
    for (host, port), why in by_host.items():
        reached = _answers(host, port)
        proxied = any(os.environ.get(f"{s}_proxy") for s in ("https", "HTTPS", "http", "HTTP"))
        if reached:
            found.append(Finding("ok", "network", f"{host} answers ({why})"))
        elif proxied:
            found.append(Finding("unknown", "network", f"{host} only by a proxy ({why})"))
        else:
            advice = (
                "; `lopd-repro fetch NAME --from FOLDER` works without" if why == "to fetch" else ""
            )
            found.append(Finding("problem", "network", f"{host} does not answer ({why}){advice}"))
    return found


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_SECONDS):
            return True
    except OSError:
        return False


def sandbox() -> Finding:
    """How programs and environments are confined on this machine."""
    from lopd_repro.sandbox.executor import Executor, ProgramLimits

    try:
        with Executor(ProgramLimits(), workers=1) as executor:
            layers = ", ".join(executor.layers)
    except (UserError, OSError) as error:
        return Finding("problem", "sandbox", str(error).splitlines()[0])
    return Finding("ok", "sandbox", layers)
