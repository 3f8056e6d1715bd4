"""A graph and its cells → files, rows gathered in chunks: no edges or features held whole."""

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gnndist.graph import SPLITS, Array, Graph
from gnndist.partitioning import Cells, Report, partition, silent
from gnndist.partitioning.work import VERTEX_WORK
from gnndist.store.check import check_graph
from gnndist.store.files import ArrayWriter, check_output, new_directory, write_text
from gnndist.store.layout import Layout
from gnndist.store.manifest import FILE, FORMAT_VERSION, FileEntry, Manifest
from gnndist.store.read import Store


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
    scratch: Path | None = None,
) -> Store:
    """Partition a graph and write it as a store.

    Parameters
    ----------
    graph:
        its arrays may be memory-mapped: edges and features are read in chunks.
    path:
        the directory to make; it appears when complete, and not at all if anything goes wrong.
    cells, method, seed, assignment, vertex_work, scratch:
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
        scratch=scratch,
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
        self.names = None if graph.vertex_names is None else _plain_names(graph.vertex_names)
        self.layout = Layout(graph, cells, None if self.names is None else self.names.dtype)

    def run(self) -> Manifest:
        """Write all files; what the manifest says of them."""
        files: dict[str, FileEntry] = {}
        for group in range(len(self.layout.group_cells) - 1):
            files.update(self._write_group(group))
        graph, cells = self.graph, self.cells
        dtypes = {name: dtype.str for name, dtype in self.layout.dtypes.items()}
        train = (self.split == 1)[cells.order]
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
            dtypes=dtypes | ({"features": "bfloat16"} if graph.bfloat16 else {}),
            split_sizes={name: int((self.split == i + 1).sum()) for i, name in enumerate(SPLITS)},
            edge_counts=None if graph.edge_counts is None else asdict(graph.edge_counts),
            partitioning={
                "method": cells.method,
                "seed": cells.seed,
                "vertex_work": cells.vertex_work,
            },
            cell_offsets=tuple(cells.offsets.tolist()),
            cell_edges=tuple(self.layout.cell_edges.tolist()),
            cell_train=tuple(np.add.reduceat(train, cells.offsets[:-1], dtype=np.int64).tolist()),
            group_cells=tuple(self.layout.group_cells),
            files=files,
        )

    def _write_group(self, group: int) -> dict[str, FileEntry]:
        """One file for each array, with the rows of one group of cells."""
        layout = self.layout
        a, b = layout.group_rows(group)
        with ExitStack() as stack:
            writers = {}
            for name, dtype in layout.dtypes.items():
                path = self.folder / file_name(name, group)
                writers[name] = ArrayWriter(path, dtype, layout.shape(name, a, b))
                stack.callback(writers[name].abandon)
            writers["indptr"].append(np.zeros(1, np.int64))
            before = 0
            for start, stop in layout.chunks(a, b):
                for name, rows in self._rows(start, stop, before).items():
                    writers[name].append(rows)
                before += int(layout.degree[start:stop].sum())
                self.progress("writing the store", stop, self.graph.num_vertices)
            return {writer.path.name: writer.close() for writer in writers.values()}

    def _rows(self, start: int, stop: int, before: int) -> dict[str, Array]:
        """What there is of global ids start..stop−1; `before`: edges already in their group."""
        graph = self.graph
        ids = self.cells.order[start:stop]
        indptr, indices, weight = self._edges(ids)
        rows = {
            "indptr": indptr[1:] + before,
            "indices": indices,
            "original_ids": ids,
            "split": self.split[ids],
        }
        if weight is not None:
            rows["edge_weight"] = weight
        if graph.features is not None:
            rows["features"] = graph.features[ids]
        if graph.labels is not None:
            rows["labels"] = graph.labels[ids]
        if self.names is not None:
            rows["vertex_names"] = self.names[ids]
        return rows

    def _edges(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array, Array | None]:
        """Rows of original ids: (indptr, in-neighbours as global ids, ascending; weights)."""
        graph = self.graph
        indptr, where = graph.entries(ids)
        columns = self.global_ids[np.asarray(graph.indices[where])]
        data = (
            np.ones(len(where), np.int8)
            if graph.edge_weight is None
            else np.asarray(graph.edge_weight[where], np.float32)
        )
        rows = sp.csr_array((data, columns, indptr), shape=(len(ids), graph.num_vertices))
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
