"""The work of a vertex: what is balanced."""

import numpy as np
from numpy.typing import NDArray

from gnndist.graph import Graph

VERTEX_WORK = 1
"""Work of a vertex in units of an edge's.

One: the self-loop that a normalised adjacency adds, so that weights are its nonzeros. On a graph
of uneven density edges and vertices cannot both be balanced without much more halo: on a coauthor
graph over 4 ranks, 1 leaves edges at 1.04 times their mean and vertices at 1.33, 8 leaves 1.21
and 1.25. Wide layers and wide features, whose dense products cost more, are better served by more:
`gnndist.inspection.measured_work` finds how much. A store remembers which it was: ranks' runs must
be cut by the same (`Store.cell_work`), or cost a tenth more halo.
"""


def vertex_weights(graph: Graph, vertex_work: int = VERTEX_WORK) -> NDArray[np.int64]:
    """[N] in-degree + `vertex_work`, at least 1."""
    weight: NDArray[np.int64] = np.maximum(np.diff(graph.indptr) + np.int64(vertex_work), 1)
    return weight


def training_vertices(graph: Graph) -> NDArray[np.int64] | None:
    """[N] 1 on training vertices, else 0; None where there are none."""
    train = graph.splits.get("train")
    if train is None or len(train) == 0:
        return None
    marked = np.zeros(graph.num_vertices, np.int64)
    marked[np.asarray(train)] = 1
    return marked
