"""Sharded tensors of a training's state on disk, for any number of ranks to go on from.

Every rank writes its shards side by side (torch.distributed.checkpoint). In the rest of the state
a tensor's place holds its name. What was written by some ranks is read by as many others, or by one
without shards, and what one wrote is divided over several.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, Shard, distribute_tensor, zeros

from lopd_repro.parallel.ranks import Ranks

_MARK = "tensor in shards"


def write_shards(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Write the sharded tensors of a state; the state with their names in their places.

    Every rank must take part. The folder must not exist.
    """
    found: dict[str, torch.Tensor] = {}

    def take(path: str, value: Any) -> Any:
        if not isinstance(value, DTensor):
            return value
        found[path] = value.detach()
        return {_MARK: path}

    rest: dict[str, Any] = _mapped(state, take)
    save(found, storage_writer=FileSystemWriter(folder, overwrite=False))
    return rest


def read_shards(folder: Path | None, state: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    """The state with its tensors, in shards where `ranks` hold them so.

    folder: where they were written, None for a state that came whole.
    """
    found: dict[str, torch.Tensor] = {}
    if folder is not None:
        reader = FileSystemReader(folder)
        for name, kept in reader.read_metadata().state_dict_metadata.items():
            found[name] = _empty(kept.size, kept.properties.dtype, ranks)  # type: ignore[union-attr]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            load(found, storage_reader=reader, no_dist=ranks.mesh is None)

    def put(path: str, value: Any) -> Any:
        if isinstance(value, dict) and _MARK in value:
            return found[value[_MARK]]
        divides = isinstance(value, torch.Tensor) and value.dim() > 0 and folder is None
        if divides and ranks.mesh is not None:
            # Each rank has read the same file: none needs another's word for its shard.
            return distribute_tensor(
                value.to(ranks.mesh.device_type), ranks.mesh, [Shard(0)], src_data_rank=None
            )
        return value

    placed: dict[str, Any] = _mapped(state, put)
    return placed


def _empty(size: Any, dtype: torch.dtype, ranks: Ranks) -> torch.Tensor:
    if ranks.mesh is None:
        return torch.zeros(size, dtype=dtype)
    found: torch.Tensor = zeros(
        tuple(size), dtype=dtype, device_mesh=ranks.mesh, placements=[Shard(0)]
    )
    return found


def _mapped(value: Any, change: Callable[[str, Any], Any], path: str = "") -> Any:
    """A tree of mappings and lists with its leaves changed; marks count as leaves."""
    if isinstance(value, dict) and _MARK not in value:
        return {key: _mapped(item, change, f"{path}/{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change, f"{path}/{i}") for i, item in enumerate(value)]
    return change(path, value)
