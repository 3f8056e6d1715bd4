"""A graph and its cells → files, rows gathered in chunks: no edges or features held whole."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gnndist.graph import SPLITS, Array, Graph
from gnndist.partitioning import Cells, Report, partition, silent
from gnndist.partitioning.work import VERTEX_WORK
from gnndist.store.check import check_graph
from gnndist.store.files import ArrayWriter, check_output, new_directory, write_text
from gnndist.store.manifest import FILE, FORMAT_VERSION, FileEntry, Manifest
from gnndist.store.read import Store

MOST_GROUPS = 64
GROUP_BYTES = 1 << 26
CHUNK_BYTES = 1 << 25


def write_store(
    graph: Graph,
    path: str | Path,
    *,
    cells: int | None = None,
    method: str | None = None,
    seed: int = 0,
    assignment: Array | None = None,
    vertex_work: int = VERTEX_WORK,
    overwrite: bool = False,
    progress: Report = silent,
) -> Store:
    """Partition a graph and write it as a store.

    Parameters
    ----------
    graph:
        its arrays may be memory-mapped: edges and features are read in chunks.
    path:
        the directory to make; it appears when complete, and not at all if anything goes wrong.
    cells, method, seed, assignment, vertex_work:
        as in `gnndist.partitioning.partition`.
    overwrite:
        replace a store that is there. Any other directory that is not empty is refused.
    progress:
        told how far the work has come.

    The same graph, method and seed give the same files, byte for byte.

    Raises
    ------
    DataError
        the graph contradicts itself: see `gnndist.store.check`.
    ConfigError
        an option that is not allowed, or `path` is taken.
    """
    path = Path(path)
    check_output(path, overwrite)
    check_graph(graph)
    division = partition(
        graph,
        cells=cells,
        method=method,
        seed=seed,
        assignment=assignment,
        vertex_work=vertex_work,
        progress=progress,
    )
    with new_directory(path, overwrite) as folder:
        manifest = _Writing(graph, division, folder, progress).run()
        write_text(folder / FILE, manifest.to_json())
    return Store.open(path)


class _Writing:
    """One store being written: what its steps share."""

    def __init__(self, graph: Graph, cells: Cells, folder: Path, progress: Report) -> None:
        self.graph = graph
        self.cells = cells
        self.folder = folder
        self.progress = progress
        self.global_ids = cells.global_ids()
        self.split = _split_codes(graph)
        self.degree = np.diff(graph.indptr)[cells.order]
        self.names = None if graph.vertex_names is None else _plain_names(graph.vertex_names)
        self.dtypes = self._dtypes()

    def run(self) -> Manifest:
        """Write all files; what the manifest says of them."""
        starts = self.cells.offsets[:-1]
        cell_edges = np.add.reduceat(self.degree, starts)
        train = self.split[self.cells.order] == 1
        group_cells = self._groups(cell_edges)
        files: dict[str, FileEntry] = {}
        for group, (first, after) in enumerate(pairwise(group_cells)):
            a, b = int(self.cells.offsets[first]), int(self.cells.offsets[after])
            files.update(self._write_group(group, a, b))
        graph = self.graph
        counts = graph.edge_counts
        return Manifest(
            format_version=FORMAT_VERSION,
            name=graph.name,
            num_vertices=graph.num_vertices,
            num_edges=graph.num_edges,
            num_features=graph.num_features,
            num_classes=graph.num_classes,
            task=graph.task,
            evaluator=graph.evaluator,
            symmetric=graph.symmetric,
            dtypes={k: v.str for k, v in self.dtypes.items()}
            | ({"features": "bfloat16"} if graph.bfloat16 else {}),
            split_sizes={name: int((self.split == i + 1).sum()) for i, name in enumerate(SPLITS)},
            edge_counts=None if counts is None else asdict(counts),
            partitioning={
                "method": self.cells.method,
                "seed": self.cells.seed,
                "vertex_work": self.cells.vertex_work,
            },
            cell_offsets=tuple(self.cells.offsets.tolist()),
            cell_edges=tuple(cell_edges.tolist()),
            cell_train=tuple(np.add.reduceat(train, starts, dtype=np.int64).tolist()),
            group_cells=tuple(group_cells),
            files=files,
        )

    def _dtypes(self) -> dict[str, np.dtype[np.generic]]:
        """Array → dtype on disk."""
        graph = self.graph
        small = graph.num_vertices < 2**31
        dtypes: dict[str, np.dtype[np.generic]] = {
            "indptr": np.dtype("<i8"),
            "indices": np.dtype("<i4" if small else "<i8"),
            "original_ids": np.dtype("<i8"),
            "split": np.dtype("u1"),
        }
        if graph.edge_weight is not None:
            dtypes["edge_weight"] = np.dtype("<f4")
        if graph.features is not None:
            kept = graph.bfloat16 or graph.features.dtype == np.float16
            dtypes["features"] = np.dtype(graph.features.dtype.str if kept else "<f4")
        if graph.labels is not None:
            dtypes["labels"] = np.dtype("<i8" if graph.task == "single-label" else "<f4")
        if self.names is not None:
            dtypes["vertex_names"] = self.names.dtype
        return dtypes

    def _groups(self, cell_edges: NDArray[np.int64]) -> list[int]:
        """[groups + 1] cells at which files are split: about `GROUP_BYTES` each."""
        edge_bytes = sum(
            self.dtypes[k].itemsize for k in ("indices", "edge_weight") if k in self.dtypes
        )
        size = edge_bytes * cell_edges + self._row_bytes() * np.diff(self.cells.offsets)
        total = np.cumsum(size)
        groups = int(np.clip(-(-total[-1] // GROUP_BYTES), 1, min(MOST_GROUPS, len(size))))
        shares = total[-1] * np.arange(1, groups) / groups
        inner = np.searchsorted(total, shares) + 1
        return sorted({0, *inner.tolist(), len(size)})

    def _row_bytes(self) -> int:
        """Bytes on disk that a vertex takes without its edges."""
        graph = self.graph
        width = {"features": graph.num_features}
        if graph.labels is not None and graph.labels.ndim == 2:
            width["labels"] = graph.num_classes
        return sum(
            dtype.itemsize * width.get(name, 1)
            for name, dtype in self.dtypes.items()
            if name not in ("indices", "edge_weight")
        )

    def _write_group(self, group: int, a: int, b: int) -> dict[str, FileEntry]:
        """The files of global ids a..b−1."""
        edges = int(self.degree[a:b].sum())
        labels = self.graph.labels
        shapes: dict[str, tuple[int, ...]] = {
            "indptr": (b - a + 1,),
            "indices": (edges,),
            "edge_weight": (edges,),
            "features": (b - a, self.graph.num_features),
            "labels": (b - a, *(() if labels is None else labels.shape[1:])),
        }
        with ExitStack() as stack:
            writers = {
                name: ArrayWriter(
                    self.folder / file_name(name, group), dtype, shapes.get(name, (b - a,))
                )
                for name, dtype in self.dtypes.items()
            }
            for writer in writers.values():
                stack.callback(writer.abandon)
            writers["indptr"].append(np.zeros(1, np.int64))
            before = 0
            for start, stop in self._chunks(a, b):
                self._write_rows(writers, start, stop, before)
                before += int(self.degree[start:stop].sum())
                self.progress("writing the store", stop, self.graph.num_vertices)
            return {writer.path.name: writer.close() for writer in writers.values()}

    def _chunks(self, a: int, b: int) -> Iterator[tuple[int, int]]:
        """Consecutive rows of about `CHUNK_BYTES`, at least one row."""
        total = np.cumsum(self.degree[a:b] * 16 + self._row_bytes())
        start = a
        while start < b:
            done = total[start - a - 1] if start > a else 0
            stop = a + int(np.searchsorted(total, done + CHUNK_BYTES, side="right"))
            stop = min(max(stop, start + 1), b)
            yield start, stop
            start = stop

    def _write_rows(
        self, writers: dict[str, ArrayWriter], start: int, stop: int, before: int
    ) -> None:
        """Global ids start..stop−1; `before`: edges already in the group's files."""
        ids = self.cells.order[start:stop]
        indptr, indices, weight = self._edges(ids)
        rows: dict[str, Array | None] = {
            "indptr": indptr[1:] + before,
            "indices": indices,
            "edge_weight": weight,
            "original_ids": ids,
            "split": self.split[ids],
        }
        for name, source in (
            ("features", self.graph.features),
            ("labels", self.graph.labels),
            ("vertex_names", self.names),
        ):
            rows[name] = None if source is None else np.asarray(source[ids])
        for name, writer in writers.items():
            chunk = rows[name]
            assert chunk is not None
            writer.append(chunk)

    def _edges(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array, Array | None]:
        """Rows of original ids: (indptr, in-neighbours as global ids, ascending; weights)."""
        graph = self.graph
        first = np.asarray(graph.indptr[ids])
        length = np.asarray(graph.indptr[ids + 1]) - first
        indptr = np.concatenate([[0], np.cumsum(length)])
        where = np.arange(indptr[-1]) + np.repeat(first - indptr[:-1], length)
        columns = self.global_ids[np.asarray(graph.indices[where])]
        data = (
            np.ones(len(where), np.int8)
            if graph.edge_weight is None
            else np.asarray(graph.edge_weight[where], np.float32)
        )
        n = graph.num_vertices
        rows = sp.csr_array((data, columns, indptr), shape=(len(ids), n))
        rows.sort_indices()
        return indptr, rows.indices, None if graph.edge_weight is None else rows.data


def file_name(array: str, group: int) -> str:
    """The file that holds an array's rows of one group of cells."""
    return f"{array}-{group:02d}.npy"


def _split_codes(graph: Graph) -> NDArray[np.uint8]:
    """[N] by original id: 0 none, 1 train, 2 valid, 3 test."""
    codes = np.zeros(graph.num_vertices, np.uint8)
    for name, ids in graph.splits.items():
        codes[np.asarray(ids)] = SPLITS.index(name) + 1
    return codes


def _plain_names(names: Array) -> Array:
    """Names in a dtype that a file holds without a pickle."""
    return names.astype(np.str_) if names.dtype.kind == "O" else names
