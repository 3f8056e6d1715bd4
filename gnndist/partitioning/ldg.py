"""Streaming: for graphs whose edges fit on disk only. Memory grows with the vertices alone.

Passes over the edges put vertices into many small clusters; METIS divides the graph of clusters;
more passes deal single vertices out again by linear deterministic greedy (LDG), which gives the
method its name. LDG from nothing, streamed ten times, was tried: it leaves 2 to 15 times the
halo that METIS does, and this way 0.97 to 1.05 times.
"""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gnndist.graph import Array
from gnndist.partitioning.metis import Metis, MetisInput, metis_for
from gnndist.partitioning.pattern import row_chunks
from gnndist.partitioning.problem import Estimate, Problem
from gnndist.partitioning.streaming import (
    cluster_rows,
    count_between,
    refine_rows,
    sample_between,
)

CLUSTERING_PASSES = 4
REFINING_PASSES = 3
CLUSTERS = 1 << 16
"""A cluster weighs at most the whole ÷ this; METIS does better with many small ones."""
MOST_CLUSTERS = 1 << 18
"""of all, unless the graph has four times as many vertices; more are put together"""
IMBALANCE = 1.03
TRAIN_IMBALANCE = 1.2
SAMPLE = 1 << 23
"""Edges between clusters that METIS sees at most: of more, it gets a sample."""


class Ldg:
    """Clusters, then METIS on their graph, then refinement; directed edges count one way."""

    def estimate(self, vertices: int, edges: int, cells: int) -> Estimate:
        between = min(edges, SAMPLE)
        small = Metis().estimate(vertices // 4, between, cells)
        passes = CLUSTERING_PASSES + REFINING_PASSES + 2
        return Estimate(
            memory=48 * vertices + 40 * between + small.memory,
            seconds=3e-8 * passes * edges + small.seconds,
        )

    def assign(self, problem: Problem) -> NDArray[np.int64]:
        if problem.cells == 1 or problem.graph.num_edges == 0:
            n = len(problem.weight)
            return np.arange(n) * problem.cells // n
        stream = _Stream(problem)
        label = stream.cluster()
        given = stream.graph_of_clusters(label)
        seconds = Metis().estimate(len(given.weight), len(given.indices), problem.cells).seconds
        cell = metis_for(problem, given, seconds)[label]
        # Where few vertices are in clusters METIS has dealt out nearly all of them one by one,
        # and with the whole in view: there refinement only does harm.
        return cell if len(given.weight) > len(label) // 2 else stream.refine(cell)


class _Stream:
    """A problem read in passes over its rows."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.indptr = np.asarray(problem.graph.indptr)
        self.indices: Array = np.asarray(problem.graph.indices)
        self.longest = int(np.diff(self.indptr).max())
        self.total = int(problem.weight.sum())
        self._pass = 0
        self._passes = CLUSTERING_PASSES + REFINING_PASSES + 2

    def cluster(self) -> NDArray[np.int64]:
        """[N] cluster of each vertex, numbered from 0 in the order of their first vertices."""
        weight = self.problem.weight
        n = len(weight)
        clusters = max(CLUSTERS, 32 * self.problem.cells)
        limit = max(self.total // clusters, 1)
        small = np.int32 if n < 2**31 else np.int64
        label = np.arange(n, dtype=small)
        load = weight.copy()
        count, touched = np.zeros(n, np.int32), np.empty(self.longest, small)
        for _ in range(CLUSTERING_PASSES):
            moved = 0
            for start, stop, rows in self._chunks():
                moved += cluster_rows(
                    start, stop, self.indptr, rows, weight, label, load, limit, count, touched
                )
            if moved == 0:
                break
        del load, count, touched
        return _packed(label, weight, limit, max(MOST_CLUSTERS, n // 4))

    def graph_of_clusters(self, label: NDArray[np.int64]) -> MetisInput:
        """Clusters as vertices; edges between them weighted by how many there are."""
        between = 0
        for start, stop, rows in self._chunks():
            between += count_between(start, stop, self.indptr, rows, label)
        every = max(1, -(-between // SAMPLE))
        clusters = int(label.max()) + 1
        keys = np.empty(0, np.int64)
        counts = np.empty(0, np.int64)
        for start, stop, rows in self._chunks():
            out = np.empty(len(rows), np.int64)
            found = sample_between(start, stop, self.indptr, rows, label, clusters, every, out)
            new, new_counts = np.unique(out[:found], return_counts=True)
            keys, counts = _merged(keys, counts, new, new_counts)
        one_way = sp.csr_array(
            (counts, (keys // clusters, keys % clusters)), shape=(clusters, clusters)
        )
        both = sp.csr_array(one_way + one_way.T)
        both.sort_indices()
        train = self.problem.train
        return MetisInput(
            indptr=both.indptr.astype(np.int64),
            indices=both.indices.astype(np.int64),
            weight=_sums(label, self.problem.weight, clusters),
            train=None if train is None else _sums(label, train, clusters),
            edge_weight=both.data.astype(np.int64),
        )

    def refine(self, cell: NDArray[np.int64]) -> NDArray[np.int64]:
        """Better cells for single vertices, by passes over the edges."""
        weight, cells = self.problem.weight, self.problem.cells
        train = self.problem.train
        if train is None:
            train = np.zeros(len(weight), np.int64)
        load, train_load = _sums(cell, weight, cells), _sums(cell, train, cells)
        limit = max(int(IMBALANCE * self.total / cells), int(weight.max()))
        train_limit = max(int(TRAIN_IMBALANCE * train.sum() / cells), int(train_load.max()))
        count, touched = np.zeros(cells, np.int64), np.empty(cells, np.int64)
        for _ in range(REFINING_PASSES):
            for start, stop, rows in self._chunks():
                refine_rows(
                    start,
                    stop,
                    self.indptr,
                    rows,
                    weight,
                    train,
                    cell,
                    load,
                    train_load,
                    limit,
                    train_limit,
                    count,
                    touched,
                )
        return cell

    def _chunks(self) -> Iterator[tuple[int, int, Array]]:
        """(start, stop, column ids) of all rows; counts as a pass."""
        edges = self.problem.graph.num_edges
        for start, stop in row_chunks(self.indptr):
            low, high = int(self.indptr[start]), int(self.indptr[stop])
            yield start, stop, self.indices[low:high]
            self.problem.report(
                "ldg: passes over the edges", self._pass * edges + high, self._passes * edges
            )
        self._pass += 1


def _packed(label: Array, weight: NDArray[np.int64], limit: int, most: int) -> NDArray[np.int64]:
    """Clusters renumbered from 0; the lightest beyond `most` are put together as they lie.

    What is that light is mostly single vertices without neighbours, or cut off by full clusters.
    """
    _, number = np.unique(label, return_inverse=True)
    number = number.astype(np.int64)
    load = _sums(number, weight, int(number.max()) + 1)
    if len(load) <= most:
        return number
    light = np.argsort(load, kind="stable")[: len(load) - most // 2]
    light.sort()
    bins = np.cumsum(load[light]) // max(limit, int(load[light].sum()) // (most // 2))
    new = np.empty(len(load), np.int64)
    new[light] = bins
    heavy = np.ones(len(load), bool)
    heavy[light] = False
    new[heavy] = bins[-1] + 1 + np.arange(int(heavy.sum()))
    _, new = np.unique(new, return_inverse=True)
    return new.astype(np.int64)[number]


def _merged(
    keys: NDArray[np.int64],
    counts: NDArray[np.int64],
    new: NDArray[np.int64],
    new_counts: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Two sorted lists of distinct keys with counts as one."""
    both = np.concatenate([keys, new])
    distinct, inverse = np.unique(both, return_inverse=True)
    total = np.bincount(inverse, np.concatenate([counts, new_counts]), len(distinct))
    return distinct, total.astype(np.int64)


def _sums(group: Array, amount: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """[groups] amounts added by group."""
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, amount)
    return total
