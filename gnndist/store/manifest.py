"""What a store says of itself: `manifest.json`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import xxhash

from gnndist.errors import StoreError
from gnndist.graph import Task

FORMAT_VERSION = 1
FILE = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One array file of a store."""

    size: int
    """bytes"""
    xxh3_128: str
    """checksum of all its bytes, hexadecimal"""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a store but its rows. Written by `write_store`, read by `Store.open`."""

    format_version: int
    name: str
    num_vertices: int
    num_edges: int
    """edges as directed entries of the adjacency: an undirected edge counts twice"""
    num_features: int
    num_classes: int
    """classes, label columns or regression targets: the width of a model's output"""
    task: Task
    evaluator: str | None
    symmetric: bool
    dtypes: Mapping[str, str]
    """array → dtype of what was stored; an array that is not named here is not in the store"""
    split_sizes: Mapping[str, int]
    edge_counts: Mapping[str, int] | None
    """read, duplicates, self_loops, reversed: what became of the edges on the way in"""
    partitioning: Mapping[str, str | int]
    """method, seed, vertex_work: how the vertices were ordered"""
    cell_offsets: tuple[int, ...]
    """[cells + 1] first global id of each cell, then the number of vertices"""
    cell_edges: tuple[int, ...]
    """[cells] entries in each cell's rows"""
    cell_train: tuple[int, ...]
    """[cells] training vertices in each cell"""
    group_cells: tuple[int, ...]
    """[groups + 1] first cell of each group of files, then the number of cells"""
    files: Mapping[str, FileEntry]
    fingerprint: str = ""
    """xxh3_128 of all of the above, which holds the checksum of every file"""

    @property
    def weighted(self) -> bool:
        return "edge_weight" in self.dtypes

    @property
    def groups(self) -> int:
        return len(self.group_cells) - 1

    def group_rows(self, group: int) -> tuple[int, int]:
        """First global id of a group's files, and the one after its last."""
        first, after = self.group_cells[group], self.group_cells[group + 1]
        return self.cell_offsets[first], self.cell_offsets[after]

    def to_json(self) -> str:
        """The text of `manifest.json`, fingerprint filled in; the same bytes every time."""
        content = asdict(self)
        content["fingerprint"] = _fingerprint(content)
        return json.dumps(content, indent=1, sort_keys=True) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """Read and check `manifest.json`.

    Raises
    ------
    StoreError
        no such file, not a manifest, another format version, or altered since it was written.
    """
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(
            f"{folder} is not a store: it has no {FILE}; make one with `gnndist partition`"
        ) from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        raise StoreError(
            f"{path} has format version {version!r}, this gnndist reads {FORMAT_VERSION}: "
            "make the store again with `gnndist partition`"
        )
    said, found = content.get("fingerprint"), _fingerprint(content)
    if said != found:
        raise StoreError(f"{path} was altered: its fingerprint is {found}, it says {said}")
    return _from_json(content, path)


def _from_json(content: dict[str, Any], path: Path) -> Manifest:
    known = {field.name for field in fields(Manifest)}
    if content.keys() != known:
        raise StoreError(f"{path} has the wrong keys: {sorted(content.keys() ^ known)}")
    for key in ("cell_offsets", "cell_edges", "cell_train", "group_cells"):
        content[key] = tuple(content[key])
    content["files"] = {name: FileEntry(**entry) for name, entry in content["files"].items()}
    return Manifest(**content)


def _fingerprint(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != "fingerprint"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(text.encode())
