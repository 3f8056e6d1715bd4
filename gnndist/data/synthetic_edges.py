"""Random edges with a power-law degree and nested communities, and their symmetric CSR.

Vertices stand in a hidden order that is halved again and again: the halves of the whole, their
halves, and so on down to the leaves. An edge of level l joins the two halves of a block of level
l, an edge of the last level stays inside a leaf. Both ends are drawn in proportion to a vertex's
weight, capped where a block is too small for a hub to find that many distinct neighbours. The
number of edges a level gets decides what every partition must cut, which is why graphs like this
can be given the cut of a real one.

Draws are a counter-based hash (splitmix64), so the edges depend on the key alone.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]
Ids = NDArray[np.int32]
Offsets = NDArray[np.int64]


def nested_edges(
    weight: NDArray[np.float64],
    public: Ids,
    *,
    edges: int,
    cuts: NDArray[np.float64],
    key: int,
) -> tuple[Offsets, Ids]:
    """Symmetric CSR of `edges` distinct undirected edges; no self-loops, no isolated vertex.

    Parameters
    ----------
    weight:
        [N] share of a vertex in the edges, in the hidden order; mean 1.
    public:
        [N] the id a vertex of the hidden order has in the result: a permutation.
    edges:
        undirected edges, at least N and at most about a sixteenth of all pairs.
    cuts:
        [levels] share of the edges that join the two halves of a block of level 0, 1, …; the
        rest stay inside the 2^levels leaves.
    key:
        64-bit seed.

    Returns
    -------
    indptr, indices
        int64 [N + 1] and int32 [2 · edges], ascending within a row.
    """
    drawn = edges
    while True:
        # Some draws repeat an edge; how many depends on the weights, so draw more until enough.
        drawn += max(drawn // 16, 16)
        source, target = _draw(weight, public, drawn, cuts, key)
        indptr, indices = _distinct(source, target, len(weight))
        del source, target
        if len(indices) >= edges:
            break
    while indptr[-1] > edges:
        _drop(indptr, indices[: indptr[-1]], indptr[-1] - edges)
    full: tuple[Offsets, Ids] = _mirror(indptr, indices[:edges])
    return full


def _draw(
    weight: NDArray[np.float64], public: Ids, edges: int, cuts: NDArray[np.float64], key: int
) -> tuple[Ids, Ids]:
    """Ends of about `edges` edges, with repeats."""
    n, levels = len(weight), len(cuts)
    mean_degree = 2 * edges / n
    source, target = np.empty(edges, np.int32), np.empty(edges, np.int32)
    at = 0
    for level in range(levels + 1):
        halves = level < levels
        bounds = np.arange((2 << min(level, levels - 1)) + 1) * n >> min(level + 1, levels)
        most = max(n / (2 << level) / mean_degree, 4.0)
        cumulative = np.zeros(n + 1)
        np.cumsum(np.minimum(weight, most), out=cumulative[1:])
        count = int(cuts[level] * edges) if halves else edges - at
        # Every vertex has one edge of its own inside its leaf: none is isolated.
        own = 0 if halves else 1
        rate = (count - own * n) / cumulative[-1]
        at = _emit(
            cumulative, bounds, halves, own, rate, np.uint64(key), public, source, target, at
        )
    return source[:at], target[:at]


@njit(cache=True)  # type: ignore[untyped-decorator]
def _emit(
    cumulative: Array,
    bounds: Array,
    halves: bool,
    own: int,
    rate: float,
    key: Any,
    public: Array,
    source: Array,
    target: Array,
    at: int,
) -> int:
    """Write the edges of one level from position `at` on; the position after the last."""
    for block in range(len(bounds) - 1):
        other = block ^ 1 if halves else block
        low, high = bounds[other], bounds[other + 1]
        base, span = cumulative[low], cumulative[high] - cumulative[low]
        for u in range(bounds[block], bounds[block + 1]):
            # Systematic sampling: shares are met to within one edge, and so is their sum.
            count = own + int(cumulative[u + 1] * rate) - int(cumulative[u] * rate)
            for _ in range(min(count, len(source) - at)):
                z = key + np.uint64(at + 1) * np.uint64(0x9E3779B97F4A7C15)
                z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                z ^= z >> np.uint64(31)
                wanted = base + span * (np.float64(z >> np.uint64(11)) * 2.0**-53)
                a, b = low, high - 1
                while a < b:
                    middle = (a + b) >> 1
                    if cumulative[middle + 1] > wanted:
                        b = middle
                    else:
                        a = middle + 1
                if a == u:
                    a = a + 1 if a + 1 < high else low
                source[at] = public[u]
                target[at] = public[a]
                at += 1
    return at


@njit(cache=True)  # type: ignore[untyped-decorator]
def _distinct(source: Array, target: Array, n: int) -> tuple[Array, Array]:
    """CSR of the distinct pairs, each once, in the row of its smaller end."""
    indptr = np.zeros(n + 1, np.int64)
    for e in range(len(source)):
        indptr[min(source[e], target[e]) + 1] += 1
    for u in range(n):
        indptr[u + 1] += indptr[u]
    indices = np.empty(len(source), np.int32)
    position = indptr[:-1].copy()
    for e in range(len(source)):
        u, v = min(source[e], target[e]), max(source[e], target[e])
        indices[position[u]] = v
        position[u] += 1
    kept = 0
    start = indptr[0]
    for u in range(n):
        row = np.sort(indices[start : indptr[u + 1]])
        start = indptr[u + 1]
        for k in range(len(row)):
            if k == 0 or row[k] != row[k - 1]:
                indices[kept] = row[k]
                kept += 1
        indptr[u + 1] = kept
    return indptr, indices[:kept]


@njit(cache=True)  # type: ignore[untyped-decorator]
def _drop(indptr: Array, indices: Array, surplus: int) -> None:
    """Remove `surplus` evenly spread edges in place, none that is the last of a vertex.

    At least one goes if there is one that may; a few may be left when the end is reached.
    """
    n, total = len(indptr) - 1, len(indices)
    degree = np.zeros(n, np.int64)
    for u in range(n):
        degree[u] += indptr[u + 1] - indptr[u]
        for e in range(indptr[u], indptr[u + 1]):
            degree[indices[e]] += 1
    due, dropped, kept = total - 1, 0, 0
    start = indptr[0]
    for u in range(n):
        for e in range(start, indptr[u + 1]):
            v = indices[e]
            due += surplus
            if (
                due >= (dropped + 1) * total
                and dropped < surplus
                and degree[u] > 1
                and degree[v] > 1
            ):
                degree[u] -= 1
                degree[v] -= 1
                dropped += 1
            else:
                indices[kept] = v
                kept += 1
        start = indptr[u + 1]
        indptr[u + 1] = kept


@njit(cache=True)  # type: ignore[untyped-decorator]
def _mirror(indptr: Array, indices: Array) -> tuple[Array, Array]:
    """The symmetric CSR of edges given once each, in the row of the smaller end."""
    n = len(indptr) - 1
    full = np.zeros(n + 1, np.int64)
    for u in range(n):
        full[u + 1] += indptr[u + 1] - indptr[u]
        for e in range(indptr[u], indptr[u + 1]):
            full[indices[e] + 1] += 1
    for u in range(n):
        full[u + 1] += full[u]
    mirrored = np.empty(2 * len(indices), np.int32)
    position = full[:-1].copy()
    # Going up through the rows writes each row's smaller neighbours, then its larger ones, in
    # ascending order: no sort is needed.
    for u in range(n):
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            mirrored[position[v]] = u
            position[v] += 1
            mirrored[position[u]] = v
            position[u] += 1
    return full, mirrored
