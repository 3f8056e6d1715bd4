"""METIS (Karypis and Kumar, 1998) through pymetis: the default."""

import numpy as np
from numpy.typing import NDArray

from gnndist.partitioning import child
from gnndist.partitioning.balanced_metis import bisect_balanced
from gnndist.partitioning.pattern import undirected
from gnndist.partitioning.problem import Estimate, Problem

INLINE = 2_000_000
"""Vertices + edges up to which METIS runs in this process: it is done within two seconds."""
TRAIN_IMBALANCE = 1.2
"""Training vertices are balanced too where work alone leaves a part with more than this share."""


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
        if problem.train is not None:
            arrays["train"] = problem.train
        if len(indptr) + len(indices) <= INLINE:
            return metis(arrays, problem.cells, problem.seed)
        return child.run("metis", arrays, problem, self.estimate)


def metis(arrays: dict[str, NDArray[np.int64]], cells: int, seed: int) -> NDArray[np.int64]:
    """The cell of each vertex: work balanced, and training vertices where they need it.

    Work alone usually balances training vertices well enough. Where it does not, METIS runs again
    with a second constraint. (Adding a training term to the one weight was tried: on real graphs
    it costs as much halo and leaves training vertices as uneven as before.)
    """
    indptr = np.ascontiguousarray(arrays["indptr"], np.int64)
    indices = np.ascontiguousarray(arrays["indices"], np.int64)
    cell = _bisect(indptr, indices, arrays["weight"], cells, seed)
    train = arrays.get("train")
    if train is None or imbalance(cell, train, cells) <= TRAIN_IMBALANCE:
        return cell
    balanced = bisect_balanced(indptr, indices, arrays["weight"], train, cells, seed)
    if balanced is None or imbalance(balanced, train, cells) >= imbalance(cell, train, cells):
        return cell
    return balanced


def _bisect(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    weight: NDArray[np.int64],
    cells: int,
    seed: int,
) -> NDArray[np.int64]:
    import pymetis

    _, cell = pymetis.part_graph(
        cells,
        adjacency=pymetis.CSRAdjacency(adj_starts=indptr, adjacent=indices),
        vweights=np.ascontiguousarray(weight, np.int64),
        recursive=True,
        options=pymetis.Options(seed=seed),
    )
    return np.asarray(cell, np.int64)


def imbalance(cell: NDArray[np.int64], train: NDArray[np.int64], cells: int) -> float:
    """Training vertices of the fullest of up to 16 parts of consecutive cells ÷ their mean."""
    parts = min(16, cells)
    counts = np.bincount(cell * parts // cells, train, parts)
    return float(counts.max() / max(counts.mean(), 1.0))
