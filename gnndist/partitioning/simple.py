"""The two ends of the scale: cells in the graph's own order, and cells drawn by lot."""

import numpy as np
from numpy.typing import NDArray

from gnndist.partitioning.problem import Estimate, Problem

OWN_STREAM = 0x9E3779B9


class Natural:
    """Runs of the original order: right where the ids already follow the structure."""

    def estimate(self, vertices: int, edges: int, cells: int) -> Estimate:
        return Estimate(memory=32 * vertices, seconds=1e-7 * vertices)

    def assign(self, problem: Problem) -> NDArray[np.int64]:
        return _equal_runs(problem.weight, problem.cells)


class Random:
    """Vertices shuffled: balanced, and the most halo; what other methods are measured against."""

    def estimate(self, vertices: int, edges: int, cells: int) -> Estimate:
        return Estimate(memory=48 * vertices, seconds=2e-7 * vertices)

    def assign(self, problem: Problem) -> NDArray[np.int64]:
        # A stream of its own: a split is often dealt out by default_rng(seed) itself.
        order = np.random.default_rng([problem.seed, OWN_STREAM]).permutation(len(problem.weight))
        assignment = np.empty(len(order), np.int64)
        assignment[order] = _equal_runs(problem.weight[order], problem.cells)
        return assignment


def _equal_runs(weight: NDArray[np.int64], cells: int) -> NDArray[np.int64]:
    """Cell of each vertex when consecutive vertices fill cells of equal weight in turn."""
    middle = 2 * np.cumsum(weight) - weight
    cell: NDArray[np.int64] = middle * cells // (2 * weight.sum())
    return cell
