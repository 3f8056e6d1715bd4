"""The undirected, loop-free pattern of a graph, as libraries for partitioning want it."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gnndist.graph import Array, Graph


def undirected(graph: Graph) -> tuple[NDArray[np.int64], Array]:
    """(indptr, indices) of the pattern of A + Aᵀ without its diagonal, sorted rows.

    Directed edges count as undirected ones: either way their two ends are better kept together.
    A graph that is symmetric and has no loops is handed back as it is, without a copy.
    """
    indptr, indices = graph.indptr, graph.indices
    n = graph.num_vertices
    if not graph.symmetric:
        ones = np.ones(len(indices), np.int8)
        matrix = sp.csr_array((ones, indices, indptr), shape=(n, n))
        both = sp.csr_array(matrix + matrix.T)
        both.sort_indices()
        indptr, indices = both.indptr.astype(np.int64), both.indices
    return _without_loops(indptr, indices)


def _without_loops(indptr: NDArray[np.int64], indices: Array) -> tuple[NDArray[np.int64], Array]:
    """Drop entries (i, i); the same arrays where there are none."""
    n = len(indptr) - 1
    degree = np.diff(indptr)
    loop = indices == np.repeat(np.arange(n, dtype=indices.dtype), degree)
    if not loop.any():
        return indptr, indices
    loops_before = np.concatenate([[0], np.cumsum(loop, dtype=np.int64)])
    return indptr - loops_before[indptr], indices[~loop]
