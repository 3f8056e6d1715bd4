"""The five OGB vertex-level data sets (Hu et al. 2020) from their raw files.

Read as they lie on disk, without the ogb package: no network, no question, no pickle.
Edges and features pass through in chunks; large ones end in scratch files, mapped.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gnndist.data.building import build
from gnndist.data.features import as_features
from gnndist.data.files import must_exist
from gnndist.data.labels import as_labels
from gnndist.data.npz import Archive
from gnndist.data.scratch import Spool
from gnndist.data.tables import Table, probe, read_numbers
from gnndist.errors import DataError
from gnndist.graph import SPLITS, Array, Graph, Task


@dataclass(frozen=True, kw_only=True)
class OgbLayout:
    """What is particular to one of the data sets."""

    name: str
    split: str
    """the folder in ``split/`` of the official split"""
    num_classes: int
    """classes, or label columns"""
    task: Task = "single-label"
    release: int = 1
    """the release that results are published on"""
    marker: str = "raw/edge.csv.gz"
    """the file whose presence means that the data set is there"""
    vertex: str = ""
    """the vertex type, where there are several"""

    @property
    def folder(self) -> str:
        return self.name.replace("-", "_")


LAYOUTS = {
    layout.name: layout
    for layout in (
        OgbLayout(name="ogbn-arxiv", split="time", num_classes=40),
        OgbLayout(name="ogbn-products", split="sales_ranking", num_classes=47),
        OgbLayout(name="ogbn-proteins", split="species", num_classes=112, task="multi-label"),
        OgbLayout(name="ogbn-papers100M", split="time", num_classes=172, marker="raw/data.npz"),
        OgbLayout(
            name="ogbn-mag",
            split="time",
            num_classes=349,
            release=2,
            marker="raw/relations/paper___cites___paper/edge.csv.gz",
            vertex="paper",
        ),
    )
}


def is_there(name: str, root: Path) -> bool:
    """Whether the raw files of the data set `name` lie in `root`."""
    layout = LAYOUTS[name]
    return (root / layout.folder / layout.marker).is_file()


def read_ogb(
    name: str,
    root: Path,
    *,
    symmetrize: bool,
    scratch: Path | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Graph:
    """The graph in ``ROOT/ogbn_NAME/`` with its official split and evaluator.

    - ogbn-proteins has no features: each vertex gets the mean of the 8 numbers on its in-edges,
      as OGB's baseline does.
    - ogbn-papers100M: vertices that are not from the arXiv have no label (−1).
    - ogbn-mag: its papers and the citations between them; authors, institutions and fields, and
      the relations to them, are left out.

    Raises
    ------
    DataError
        a missing or malformed file, or one that does not fit the others; another release.
    """
    layout = LAYOUTS[name]
    folder = root / layout.folder
    _check_release(folder, layout)
    raw = folder / "raw"
    progress(f"reading {raw}: edges")
    read = _read_binary if layout.marker.endswith(".npz") else _read_tables
    edges, features, labels, count = read(raw, layout, symmetrize, scratch, progress)
    labels, task, classes = as_labels(
        labels,
        str(raw / "node-label"),
        layout.num_classes if layout.task == "single-label" else None,
    )
    if (task, classes) != (layout.task, layout.num_classes):
        raise DataError(
            f"{raw / 'node-label'}: {task} labels in {classes} column(s): "
            f"allowed are {layout.task} in {layout.num_classes}"
        )
    return build(
        edges,
        folder,
        num_vertices=count,
        symmetrize=symmetrize,
        scratch=scratch,
        features=features,
        labels=labels,
        task=task,
        num_classes=classes,
        splits=_splits(folder / "split" / layout.split / layout.vertex),
        name=name,
        evaluator=name,
    )


def _check_release(folder: Path, layout: OgbLayout) -> None:
    releases = sorted(p.name for p in folder.glob("RELEASE_v*.txt"))
    if releases and f"RELEASE_v{layout.release}.txt" not in releases:
        raise DataError(
            f"{folder}: holds {', '.join(releases)}: allowed is release {layout.release}; "
            "remove the folder and download it anew"
        )


def _read_tables(
    raw: Path,
    layout: OgbLayout,
    symmetrize: bool,
    scratch: Path | None,
    progress: Callable[[str], None],
) -> tuple[Array, Array | None, Array, int]:
    """Edges, features, labels and the number of vertices from gzipped tables."""
    vertex = layout.vertex
    count = _vertex_count(raw, vertex)
    edge_feat = raw / "edge-feat.csv.gz"
    features: Array | None = None
    if layout.name == "ogbn-proteins":
        edges, features = _edges_with_means(raw, edge_feat, count, symmetrize, scratch)
    else:
        pairs = Spool(np.int32 if count < 2**31 else np.int64, scratch)
        for _, block in _edge_blocks(
            _table(raw / Path(layout.marker).relative_to("raw"), 2), count
        ):
            pairs.append(block)
        edges = pairs.array().T
        folder = raw / "node-feat" / vertex if vertex else raw
        progress(f"reading {folder / 'node-feat.csv.gz'}")
        features = _spooled(folder / "node-feat.csv.gz", "float32", count, scratch)
    folder = raw / "node-label" / vertex if vertex else raw
    labels = _spooled(folder / "node-label.csv.gz", "float32", count, scratch)
    return edges, features, labels, count


def _table(path: Path, columns: int | None = None) -> Table:
    table = probe(path, header=False, separator=",")
    if columns is not None and table.columns != columns:
        raise DataError(f"{path}: {table.columns} columns: allowed are {columns}")
    return table


def _column(path: Path) -> Array:
    """The integers of a table of one column."""
    blocks = [block[:, 0] for _, block in read_numbers(_table(path, 1), "int64")]
    return np.concatenate(blocks)


def _vertex_count(raw: Path, vertex: str) -> int:
    """N, from ``num-node-list`` or, where there are several types, ``num-node-dict``."""
    if not vertex:
        path = raw / "num-node-list.csv.gz"
        counts = _column(path)
    else:
        path = raw / "num-node-dict.csv.gz"
        header = probe(path, header=False, separator=",")
        if vertex not in header.first:
            raise DataError(f"{path}: names no {vertex!r} but {', '.join(header.first)}")
        table = probe(path, header=True, separator=",")
        if table.columns != len(header.first):
            raise DataError(f"{path}: {len(header.first)} names, but {table.columns} numbers")
        column = header.first.index(vertex)
        counts = np.concatenate([b[:, column] for _, b in read_numbers(table, "int64")])
    if len(counts) != 1 or counts[0] < 1:
        raise DataError(
            f"{path}: counts {counts.tolist()}: allowed is one graph of 1 vertex or more"
        )
    return int(counts[0])


def _edge_blocks(table: Table, count: int) -> Iterator[tuple[int, Array]]:
    """Blocks of [rows, 2] ids, all of them below `count`, each with the number of rows before."""
    for before, block in read_numbers(table, "int64"):
        wrong = ((block < 0) | (block >= count)).any(axis=1)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise table.error(
                before + row + 1,
                f"joins vertex {block[row, 0]} to {block[row, 1]}: allowed are 0 to {count - 1}",
            )
        yield before, block


def _spooled(path: Path, dtype: str, rows: int, scratch: Path | None) -> Array:
    """[rows, columns] of a table, which must have as many."""
    spool = Spool(dtype, scratch)
    table = _table(must_exist(path, "table"))
    for _, block in read_numbers(table, dtype):
        spool.append(block)
    array = spool.array()
    if len(array) != rows:
        raise DataError(f"{path}: {len(array)} rows, but there are {rows} vertices")
    return array


def _edges_with_means(
    raw: Path, edge_feat: Path, count: int, symmetrize: bool, scratch: Path | None
) -> tuple[Array, Array]:
    """Edges, and for each vertex the mean of the features of its in-edges (0 without any).

    Symmetrised, the reverse of an edge has the same features; equal edges count each.
    """
    table = _table(must_exist(edge_feat, "table of edge features"))
    pairs = Spool(np.int32 if count < 2**31 else np.int64, scratch)
    sums = np.zeros((count, table.columns))
    times = np.zeros(count, np.int64)
    numbers = read_numbers(table, "float32")
    edges = _edge_blocks(_table(raw / "edge.csv.gz", 2), count)
    for (before, block), (_, values) in zip_longest(edges, numbers, fillvalue=(0, None)):
        if block is None or values is None or len(block) != len(values):
            raise DataError(
                f"{edge_feat}: not one row for each edge in {raw / 'edge.csv.gz'}, "
                f"from row {before + 1} on"
            )
        pairs.append(block)
        for ends in (block[:, 1], block[:, 0])[: 1 + symmetrize]:
            sums += _sums(ends, values, count)
            times += np.bincount(ends, minlength=count)
    means = sums / np.maximum(times, 1)[:, None]
    return pairs.array().T, means.astype(np.float32)


def _sums(ends: Array, values: Array, count: int) -> Any:
    """[count, F]: row v is the sum of `values` of the edges that end at v."""
    shape = (count, len(ends))
    picks = sp.csr_array((np.ones(len(ends)), (ends, np.arange(len(ends)))), shape=shape)
    return picks @ values.astype(np.float64)


def _read_binary(
    raw: Path,
    layout: OgbLayout,
    symmetrize: bool,
    scratch: Path | None,
    progress: Callable[[str], None],
) -> tuple[Array, Array | None, Array, int]:
    """Edges, features, labels and the number of vertices from numpy archives."""
    with Archive(raw / "data.npz", scratch) as data:
        counts = data.integers("num_nodes_list").tolist()
        edges = data.integers("edge_index", ndim=2)
        progress(f"reading {raw / 'data.npz'}: features")
        features = as_features(data.array("node_feat"), f"{data.path}: node_feat")
    if len(counts) != 1 or counts[0] < 1:
        raise DataError(f"{raw / 'data.npz'}: num_nodes_list is {counts}: allowed is one graph")
    with Archive(raw / "node-label.npz", scratch) as archive:
        labels = archive.array("node_label")
    if len(labels) != counts[0]:
        raise DataError(f"{archive.path}: {len(labels)} rows, but {counts[0]} vertices")
    return edges, features, labels, int(counts[0])


def _splits(folder: Path) -> dict[str, Array]:
    return {name: _column(folder / f"{name}.csv.gz") for name in SPLITS}
