"""The smallest set of messages that carries a set of cut edges: a minimum vertex cover.

A cut edge (row, column) reaches its row either because the column's features are sent as they
are, or as part of a sum over the row's columns that the sender forms. Choosing for every edge one
of its two ends, as few ends as possible, is a minimum vertex cover of a bipartite graph, which
König's theorem reads off a maximum matching (Kőnig 1931; matching by Hopcroft and Karp 1973).
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, maximum_bipartite_matching


class Cover(NamedTuple):
    """Which ends of the edges are in the cover."""

    rows: NDArray[np.bool_]
    """[num_rows]"""
    columns: NDArray[np.bool_]
    """[num_columns]"""


def minimum_vertex_cover(
    row: NDArray[np.int64], column: NDArray[np.int64], num_rows: int, num_columns: int
) -> Cover:
    """A minimum vertex cover of the bipartite graph with edges (row[k], column[k]).

    `row` and `column` are [E], each edge once. The result covers every edge and has as many
    members as a maximum matching has edges.
    """
    pattern = sp.csr_array(
        (np.ones(len(row), np.int8), (row, column)), shape=(num_rows, num_columns)
    )
    partner = maximum_bipartite_matching(pattern, perm_type="column")  # [num_rows], −1: none
    matched = np.flatnonzero(partner >= 0)
    free = np.flatnonzero(partner < 0)
    # Alternating paths from the free rows: row → column along any edge, column → row along a
    # matched one. Vertices: rows, then columns, then one source joined to every free row.
    source = num_rows + num_columns
    tail = np.concatenate([row, num_rows + partner[matched], np.full(len(free), source)])
    head = np.concatenate([num_rows + column, matched, free])
    paths = sp.csr_array((np.ones(len(tail), np.int8), (tail, head)), shape=(source + 1,) * 2)
    reached = np.zeros(source + 1, bool)
    reached[breadth_first_order(paths, source, return_predecessors=False)] = True
    return Cover(rows=~reached[:num_rows], columns=reached[num_rows:source])
