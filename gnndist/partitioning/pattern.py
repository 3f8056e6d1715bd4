"""The undirected, loop-free pattern of a graph, as libraries for partitioning want it."""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gnndist.graph import Array, Graph

CHUNK_EDGES = 1 << 23


class Pattern:
    """Rows of A + Aᵀ without its diagonal, handed out in chunks.

    Directed edges count as undirected ones: either way their two ends are better kept together.
    A symmetric graph is read where it lies (it may be mapped from a file); another is symmetrised
    in memory.
    """

    def __init__(self, graph: Graph) -> None:
        if graph.symmetric:
            self._indptr, self._indices = np.asarray(graph.indptr), graph.indices
        else:
            self._indptr, self._indices = _symmetrized(graph)
        loops = np.zeros(graph.num_vertices, np.int64)
        for start, stop, columns in self._rows():
            row, column = self._entries(start, stop, columns)
            loops[row[row == column]] = 1
        self.indptr: NDArray[np.int64] = self._indptr - np.concatenate([[0], np.cumsum(loops)])
        """[N + 1] first entry of each row"""

    @property
    def num_entries(self) -> int:
        return int(self.indptr[-1])

    def columns(self) -> Iterator[Array]:
        """The column ids of all rows, ascending within a row, a chunk of rows at a time."""
        for start, stop, columns in self._rows():
            row, column = self._entries(start, stop, columns)
            yield column[row != column]

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(indptr, indices) in memory."""
        indices = np.empty(self.num_entries, np.int64)
        at = 0
        for chunk in self.columns():
            indices[at : at + len(chunk)] = chunk
            at += len(chunk)
        return self.indptr, indices

    def _rows(self) -> Iterator[tuple[int, int, Array]]:
        for start, stop in row_chunks(self._indptr):
            low, high = self._indptr[start], self._indptr[stop]
            yield start, stop, np.asarray(self._indices[low:high])

    def _entries(self, start: int, stop: int, columns: Array) -> tuple[Array, Array]:
        degree = np.diff(self._indptr[start : stop + 1])
        return np.repeat(np.arange(start, stop, dtype=columns.dtype), degree), columns


def row_chunks(indptr: NDArray[np.int64], edges: int = CHUNK_EDGES) -> Iterator[tuple[int, int]]:
    """(start, stop) of consecutive rows with about `edges` entries, at least one row."""
    n = len(indptr) - 1
    start = 0
    while start < n:
        stop = int(np.searchsorted(indptr, indptr[start] + edges, side="right")) - 1
        stop = min(max(stop, start + 1), n)
        yield start, stop
        start = stop


def undirected(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(indptr, indices) of the pattern, in memory."""
    return Pattern(graph).arrays()


def _symmetrized(graph: Graph) -> tuple[NDArray[np.int64], Array]:
    n = graph.num_vertices
    ones = np.ones(len(graph.indices), np.int8)
    matrix = sp.csr_array((ones, graph.indices, graph.indptr), shape=(n, n))
    both = sp.csr_array(matrix + matrix.T)
    both.sort_indices()
    return both.indptr.astype(np.int64), both.indices
