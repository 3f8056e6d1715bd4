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
