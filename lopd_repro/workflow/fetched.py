"""What a configuration takes from outside, by source name, and where a fetch places it.

Fetched things stand in `DATA/NAME`, with DATA the configuration's `data`; `tasks.source: hub`, a
backbone's `source: hub` and the embedder `hub:NAME` name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from lopd_repro.errors import UserError
from lopd_repro.fetch.registry import Source, find
from lopd_repro.workflow.released import Released, released

DATA = "data"
_HUB = "hub:"
_TASK_FILES = ("environments", "scenarios", "files")


def data_folder(config: Mapping[str, Any]) -> str:
    """The folder of fetched things."""
    return str(config.get("data", DATA))


def place(config: Mapping[str, Any], source: Source) -> str:
    """Where one source stands."""
    return source.target or f"{data_folder(config)}/{source.name}"


def sources_file(config: Mapping[str, Any]) -> str:
    """The configuration's own file of sources; empty if it names none."""
    return str(config.get("sources", ""))


def backbone_source(config: Mapping[str, Any], backbone: Mapping[str, Any]) -> Source:
    """The source of a backbone with `source: hub`."""
    if "model" not in backbone:
        raise UserError(
            "backbones: `source: hub` needs `model`: a registered name, or OWNER/NAME "
            "with `revision`"
        )
    return find(backbone["model"], backbone.get("revision"), sources_file(config))


def released_folder(config: Mapping[str, Any], checkpoint: Released) -> str:
    """Where a released checkpoint's files are."""
    source = checkpoint.source
    return place(config, source) if source else str(checkpoint.path)


def task_sources(config: Mapping[str, Any]) -> list[Source]:
    """The sources of a domain's tasks; none unless `tasks.source` is hub."""
    tasks = config["tasks"]
    if tasks["source"] != "hub":
        return []
    names = [name for key in _TASK_FILES for name in _listed(tasks.get(key, []))]
    if not names:
        raise UserError(
            "tasks: `source: hub` needs names of sources: `environments` and `scenarios`, or "
            "`files` (coding)"
        )
    return [find(name, more=sources_file(config)) for name in names]


def task_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The section `tasks` as the command reads it: a hub's files are files."""
    tasks = dict(config["tasks"])
    if tasks["source"] != "hub":
        return tasks
    task_sources(config)
    for key in _TASK_FILES:
        if key in tasks:
            named = [find(name, more=sources_file(config)) for name in _listed(tasks[key])]
            found = [file for source in named for file in _files(config, source)]
            tasks[key] = found if key == "files" else found[0]
    return {**tasks, "source": "files"}


def embedder_sources(config: Mapping[str, Any]) -> list[Source]:
    """The source of the retriever's model, if it is fetched."""
    name = config["bank"]["embedder"]
    if not name.startswith(_HUB):
        return []
    return [find(name.removeprefix(_HUB), more=sources_file(config))]


def embedder(config: Mapping[str, Any]) -> str:
    """The embedder as the command reads it."""
    for source in embedder_sources(config):
        return f"sentence-transformers:{place(config, source)}"
    return str(config["bank"]["embedder"])


def folders_of(config: Mapping[str, Any], files: Iterable[str]) -> list[str]:
    """The fetched folders in which some files named in the configuration stand."""
    root = PurePosixPath(data_folder(config))
    found = []
    for file in map(PurePosixPath, files):
        if root in file.parents and len(file.relative_to(root).parts) > 1:
            source = find(file.relative_to(root).parts[0], more=sources_file(config))
            found.append(place(config, source))
    return found


def needed(domains: Mapping[str, Mapping[str, Any]]) -> dict[str, Source]:
    """Every source that the domains of a configuration need, by name."""
    found: dict[str, Source] = {}
    for config in domains.values():
        models = [
            backbone_source(config, own)
            for own in config["backbones"].values()
            if own["source"] == "hub"
        ]
        models += [one.source for one in released(config) if one.source]
        for source in [*models, *task_sources(config), *embedder_sources(config)]:
            found[source.name] = source
        for source in _benchmark_sources(config):
            found[source.name] = source
    return found


def _benchmark_sources(config: Mapping[str, Any]) -> list[Source]:
    """What official suites need beside their packages, unless the configuration names a folder."""
    own = {
        name: settings
        for name, settings in config["benchmarks"].items()
        if settings.get("suite", "official") == "official"
    }
    names = []
    if "acebench" in own and not own["acebench"].get("official", {}).get("repository"):
        names.append("acebench-repository")
    if "livecodebench" in own:
        if not own["livecodebench"].get("repository"):
            names.append("livecodebench-repository")
        if not own["livecodebench"].get("data_folder"):
            names.append("livecodebench-data")
    if "evalplus" in own:
        paths = [own["evalplus"].get(f"{name}_file", "") for name in ("humaneval", "mbpp")]
        names += [PurePosixPath(folder).name for folder in folders_of(config, filter(None, paths))]
    return [find(name, more=sources_file(config)) for name in names]


def _files(config: Mapping[str, Any], source: Source) -> list[str]:
    folder = place(config, source)
    if not source.files:
        raise UserError(f"source {source.name}: its files are not listed, so it holds no tasks")
    return [f"{folder}/{name}" for name in source.files]


def _listed(value: Any) -> list[str]:
    return list(value) if isinstance(value, list) else [value]
