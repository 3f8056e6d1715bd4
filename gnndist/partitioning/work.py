"""The work of a vertex: what is balanced."""

import numpy as np
from numpy.typing import NDArray

from gnndist.graph import Graph

VERTEX_WORK = 1
"""Work of a vertex in units of an edge's.

One: the self-loop that a normalised adjacency adds, so that weights are its nonzeros. Larger
values balance the dense products better and the edges worse (benchmarks/partitioners.py).
"""


def vertex_weights(graph: Graph, vertex_work: int = VERTEX_WORK) -> NDArray[np.int64]:
    """[N] in-degree + `vertex_work`."""
    return np.diff(graph.indptr) + np.int64(vertex_work)


def training_vertices(graph: Graph) -> NDArray[np.int64] | None:
    """[N] 1 on training vertices, else 0; None where there are none."""
    train = graph.splits.get("train")
    if train is None or len(train) == 0:
        return None
    marked = np.zeros(graph.num_vertices, np.int64)
    marked[np.asarray(train)] = 1
    return marked
