"""A piece of a graph that is not partitioned yet, in the order that the partition will give it.

In its own order a graph's neighbours may lie anywhere, and gathering them takes two or three times
as long as in a partition's. So a piece is partitioned by itself: grown around a vertex, since a run
of consecutive ones may have hardly an edge inside.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gnndist.graph import Array, Graph
from gnndist.inspection.locality import Piece
from gnndist.partitioning import partition

ROWS, MOST_EDGES = 60_000, 1_000_000
"""vertices of a piece, and the edges into them, at most"""
STARTS = 1024
"""vertices from which it grows on where a component has ended"""


def piece_of_graph(graph: Graph, assignment: Array | None = None, **options: Any) -> Piece:
    """A piece of a graph, ordered by `partition` with these options.

    Reads the rows of the piece only, so the graph may be larger than memory.
    """
    ids = ball(graph)
    piece = _induced(graph, ids)
    own = None if assignment is None else np.asarray(assignment)[ids]
    order = partition(piece, assignment=own, **options).order
    ones = np.ones(piece.num_edges, np.int8)
    matrix = sp.csr_array((ones, piece.indices, piece.indptr), shape=(len(ids), len(ids)))
    ordered = matrix[order][:, order]
    ordered.sort_indices()
    return Piece.of(ordered.indptr, ordered.indices)


def ball(graph: Graph) -> NDArray[np.int64]:
    """Up to `ROWS` vertices around one in the middle, ascending; none with too many edges."""
    degree = np.diff(graph.indptr)
    seen = degree > MOST_EDGES
    rows, edges = min(ROWS, int(np.count_nonzero(~seen))), MOST_EDGES
    frontier = _start(degree, seen)
    found: list[NDArray[np.int64]] = []
    while rows > 0 and len(frontier):
        frontier = frontier[:rows]
        frontier = frontier[np.cumsum(degree[frontier]) <= edges]
        found.append(frontier)
        rows -= len(frontier)
        edges -= int(degree[frontier].sum())
        if len(frontier) == 0:
            break
        seen[frontier] = True
        sources = np.unique(graph.indices[graph.entries(frontier)[1]]).astype(np.int64)
        frontier = sources[~seen[sources]]
        if len(frontier) == 0:
            frontier = np.flatnonzero(~seen)[:STARTS]
    return np.sort(np.concatenate([np.empty(0, np.int64), *found]))


def _start(degree: NDArray[np.int64], never: NDArray[np.bool_]) -> NDArray[np.int64]:
    """A vertex of at least mean degree, from the middle if there is one."""
    fit = np.flatnonzero((degree >= degree.mean()) & ~never)
    return fit[len(fit) // 2 :][:1] if len(fit) else np.flatnonzero(~never)[:1]


def _induced(graph: Graph, ids: NDArray[np.int64]) -> Graph:
    """The edges among some vertices, ascending, numbered by their place among them."""
    indptr, where = graph.entries(ids)
    sources = graph.indices[where]
    place = np.minimum(np.searchsorted(ids, sources), len(ids) - 1)
    inside = ids[place] == sources
    kept = np.concatenate([[0], np.cumsum(inside)])[indptr]
    return Graph(indptr=kept, indices=place[inside], symmetric=graph.symmetric, name=graph.name)
