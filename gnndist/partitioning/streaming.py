"""Passes over a graph's rows, a chunk at a time, with a few numbers a vertex in memory.

Compiled by numba; each function works on the rows ``start..stop − 1``, whose column ids alone it
is given, so that a graph in a mapped file need not be in memory.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]


@njit(cache=True)  # type: ignore[untyped-decorator]
def cluster_rows(
    start: int,
    stop: int,
    indptr: Array,
    indices: Array,
    weight: Array,
    label: Array,
    load: Array,
    limit: int,
    count: Array,
    touched: Array,
) -> int:
    """Move each vertex into the cluster that most of its neighbours are in, if there is room.

    Label propagation with a bound on size (Meyerhenke, Sanders and Schulz, 2014). Among equals
    the heavier cluster wins, so that clusters grow. Returns how many vertices moved.

    indices: column ids of these rows alone; label, load, count: [N], count all 0 before and
    after; touched: room for the longest row.
    """
    base = indptr[start]
    moved = 0
    for v in range(start, stop):
        own, w, found = label[v], weight[v], 0
        for e in range(indptr[v] - base, indptr[v + 1] - base):
            if indices[e] == v:
                continue
            c = label[indices[e]]
            if count[c] == 0:
                touched[found] = c
                found += 1
            count[c] += 1
        best, best_count, best_load = own, count[own], load[own]
        for i in range(found):
            c = touched[i]
            if c != own and load[c] + w <= limit:
                better = count[c] > best_count
                if better or (count[c] == best_count and load[c] > best_load):
                    best, best_count, best_load = c, count[c], load[c]
            count[c] = 0
        if best != own:
            load[own] -= w
            load[best] += w
            label[v] = best
            moved += 1
    return moved


@njit(cache=True)  # type: ignore[untyped-decorator]
def refine_rows(
    start: int,
    stop: int,
    indptr: Array,
    indices: Array,
    weight: Array,
    train: Array,
    cell: Array,
    load: Array,
    train_load: Array,
    limit: int,
    train_limit: int,
    count: Array,
    touched: Array,
) -> int:
    """Deal each vertex out again: to the cell with most neighbours, less so the fuller it is.

    Linear deterministic greedy (Stanton and Kliot, 2012), streamed again with what is known from
    before (Nishimura and Ugander, 2013), with half its penalty, since cells are balanced to begin
    with. No cell takes a vertex from another beyond its limits, and one that is beyond them already
    is not emptied by force, which would scatter vertices. Returns how many moved.

    load, train_load, count: [cells]; otherwise as `cluster_rows`.
    """
    base = indptr[start]
    moved = 0
    for v in range(start, stop):
        own, w, t, found = cell[v], weight[v], train[v], 0
        load[own] -= w
        train_load[own] -= t
        for e in range(indptr[v] - base, indptr[v + 1] - base):
            if indices[e] == v:
                continue
            c = cell[indices[e]]
            if count[c] == 0:
                touched[found] = c
                found += 1
            count[c] += 1
        best, best_score = own, count[own] * (1.0 - 0.5 * min(load[own] / limit, 1.0))
        for i in range(found):
            c = touched[i]
            room = load[c] + w <= limit and (t == 0 or train_load[c] + t <= train_limit)
            score = count[c] * (1.0 - 0.5 * load[c] / limit)
            if room and score > best_score:
                best, best_score = c, score
            count[c] = 0
        load[best] += w
        train_load[best] += t
        if best != own:
            cell[v] = best
            moved += 1
    return moved


@njit(cache=True)  # type: ignore[untyped-decorator]
def count_between(start: int, stop: int, indptr: Array, indices: Array, label: Array) -> int:
    """How many entries of these rows join two clusters."""
    base = indptr[start]
    between = 0
    for v in range(start, stop):
        for e in range(indptr[v] - base, indptr[v + 1] - base):
            if label[indices[e]] != label[v]:
                between += 1
    return between


@njit(cache=True)  # type: ignore[untyped-decorator]
def sample_between(
    start: int,
    stop: int,
    indptr: Array,
    indices: Array,
    label: Array,
    clusters: int,
    every: int,
    out: Array,
) -> int:
    """Of entries that join two clusters one in `every`: row's cluster × clusters + column's.

    out: room for a sample of all entries of these rows; returns how many there are. Which entries
    are taken depends on their position in the whole graph alone.
    """
    base = indptr[start]
    found = 0
    for v in range(start, stop):
        for e in range(indptr[v] - base, indptr[v + 1] - base):
            a, b = label[v], label[indices[e]]
            if a == b:
                continue
            position = np.uint64(base + e) * np.uint64(0x9E3779B97F4A7C15)
            if (position >> np.uint64(33)) % np.uint64(every) == 0:
                out[found] = np.int64(a) * np.int64(clusters) + np.int64(b)
                found += 1
    return found
