"""METIS (Karypis and Kumar, 1998) through pymetis: the default."""

import numpy as np
from numpy.typing import NDArray

from gnndist.partitioning import child
from gnndist.partitioning.pattern import undirected
from gnndist.partitioning.problem import Estimate, Problem

INLINE = 2_000_000
"""Vertices + edges up to which METIS runs in this process: it is done within two seconds."""


class Metis:
    """Recursive bisection: METIS numbers its parts so that each subtree is a run of cells.

    METIS holds the interpreter's lock while it works. A large graph therefore goes to a process
    of its own, which can be interrupted, shows progress, and gives its memory back.
    """

    def estimate(self, vertices: int, edges: int, cells: int) -> Estimate:
        return Estimate(memory=64 * edges + 200 * vertices, seconds=2e-6 * edges)

    def assign(self, problem: Problem) -> NDArray[np.int64]:
        indptr, indices = undirected(problem.graph)
        if problem.cells == 1 or len(indices) == 0:
            return np.arange(len(problem.weight)) * problem.cells // len(problem.weight)
        arrays = {"indptr": indptr, "indices": indices, "weight": problem.weight}
        if len(indptr) + len(indices) <= INLINE:
            return metis(arrays, problem.cells, problem.seed)
        return child.run("metis", arrays, problem, self.estimate)


def metis(arrays: dict[str, NDArray[np.int64]], cells: int, seed: int) -> NDArray[np.int64]:
    """Call the library: the cell of each vertex."""
    import pymetis

    adjacency = pymetis.CSRAdjacency(
        adj_starts=np.ascontiguousarray(arrays["indptr"], np.int64),
        adjacent=np.ascontiguousarray(arrays["indices"], np.int64),
    )
    _, cell = pymetis.part_graph(
        cells,
        adjacency=adjacency,
        vweights=np.ascontiguousarray(arrays["weight"], np.int64),
        recursive=True,
        options=pymetis.Options(seed=seed),
    )
    return np.asarray(cell, np.int64)
