"""How a graph lies in files: dtypes, groups of cells, chunks of rows."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gnndist.graph import Graph
from gnndist.partitioning import Cells

MOST_GROUPS = 64
GROUP_BYTES = 1 << 26
"""files are split so that a group of cells takes about this much"""
CHUNK_BYTES = 1 << 25
"""rows are gathered and written about this much at a time"""
BY_EDGE = ("indices", "edge_weight")
"""arrays with an entry an edge; the others have a row a vertex"""


class Layout:
    """Where the rows of a graph go, in the order of its cells."""

    def __init__(self, graph: Graph, cells: Cells, names: np.dtype[np.generic] | None) -> None:
        self.cells = cells
        self.degree: NDArray[np.int64] = np.diff(graph.indptr)[cells.order]
        """[N] by global id"""
        self.dtypes = _dtypes(graph, names)
        """array → dtype on disk"""
        self._width = {
            "features": (graph.num_features,),
            "labels": () if graph.labels is None else tuple(graph.labels.shape[1:]),
        }
        widths = {name: int(np.prod(width)) for name, width in self._width.items()}
        self._row_bytes = sum(
            dtype.itemsize * widths.get(name, 1)
            for name, dtype in self.dtypes.items()
            if name not in BY_EDGE
        )
        self.cell_edges: NDArray[np.int64] = np.add.reduceat(self.degree, cells.offsets[:-1])
        self.group_cells = self._groups()
        """[groups + 1] cells at which files are split"""

    def group_rows(self, group: int) -> tuple[int, int]:
        """First global id of a group, and the one after its last."""
        first, after = self.group_cells[group], self.group_cells[group + 1]
        return int(self.cells.offsets[first]), int(self.cells.offsets[after])

    def shape(self, array: str, a: int, b: int) -> tuple[int, ...]:
        """Of the part of an array that belongs to global ids a..b−1."""
        if array in BY_EDGE:
            return (int(self.degree[a:b].sum()),)
        if array == "indptr":
            return (b - a + 1,)
        return (b - a, *self._width.get(array, ()))

    def chunks(self, a: int, b: int) -> Iterator[tuple[int, int]]:
        """Consecutive rows from a to b of about `CHUNK_BYTES`, at least one row."""
        # An edge takes 16 bytes while it is gathered, whatever it takes on disk.
        total = np.cumsum(self.degree[a:b] * 16 + self._row_bytes)
        start = a
        while start < b:
            done = total[start - a - 1] if start > a else 0
            stop = a + int(np.searchsorted(total, done + CHUNK_BYTES, side="right"))
            stop = min(max(stop, start + 1), b)
            yield start, stop
            start = stop

    def _groups(self) -> list[int]:
        edge_bytes = sum(self.dtypes[name].itemsize for name in BY_EDGE if name in self.dtypes)
        size = edge_bytes * self.cell_edges + self._row_bytes * np.diff(self.cells.offsets)
        total = np.cumsum(size)
        groups = int(np.clip(-(-total[-1] // GROUP_BYTES), 1, min(MOST_GROUPS, len(size))))
        shares = total[-1] * np.arange(1, groups) / groups
        inner = np.searchsorted(total, shares) + 1
        return sorted({0, *inner.tolist(), len(size)})


def _dtypes(graph: Graph, names: np.dtype[np.generic] | None) -> dict[str, np.dtype[np.generic]]:
    dtypes: dict[str, np.dtype[np.generic]] = {
        "indptr": np.dtype("<i8"),
        "indices": np.dtype("<i4" if graph.num_vertices < 2**31 else "<i8"),
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
    if names is not None:
        dtypes["vertex_names"] = names
    return dtypes
