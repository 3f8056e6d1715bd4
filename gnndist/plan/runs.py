"""Ranks' runs: which consecutive vertices each rank owns.

Cells are the leaves of a recursive partition, so where the store's order is cut matters: a cut
between two halves of the whole graph costs few edges, one inside a tight cluster many. Runs are
cut at cell boundaries, as high in the recursion as a given imbalance allows.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnndist.errors import ConfigError

IMBALANCE = 0.02
"""How far above the best balance possible a run may be, for a cut higher in the recursion."""


def cut_runs(
    cell_offsets: ArrayLike, cell_work: ArrayLike, ranks: int, *, imbalance: float = IMBALANCE
) -> NDArray[np.int64]:
    """Cut the store's order into one run of consecutive vertices a rank.

    Parameters
    ----------
    cell_offsets:
        [cells + 1] first vertex of each cell, then the number of vertices.
    cell_work:
        [cells] work of each cell, any unit, not negative.
    ranks:
        number of runs.
    imbalance:
        a run may exceed the smallest possible maximum by this fraction.

    Returns
    -------
    int64 [ranks + 1], strictly ascending from 0: rank r owns vertices ``[out[r], out[r + 1])``.
    With more ranks than cells runs are cut inside cells, whose work counts as evenly spread.

    Raises
    ------
    ConfigError
        `ranks` is not between 1 and the number of vertices.
    """
    offsets = np.asarray(cell_offsets, np.int64)
    work = np.asarray(cell_work, np.float64)
    vertices = int(offsets[-1])
    if not 1 <= ranks <= vertices:
        raise ConfigError(f"{ranks} ranks: allowed are 1 to {vertices}, the number of vertices")
    if (np.diff(offsets) == 0).any():  # an empty cell must not become an empty run
        kept = np.diff(offsets) > 0
        offsets, work = np.append(offsets[:-1][kept], vertices), work[kept]
    total = np.concatenate([[0.0], np.cumsum(work)])
    if ranks > len(work):
        return _cut_evenly(offsets, total, ranks)
    limit = _smallest_maximum(total, ranks) * (1 + imbalance)
    return offsets[_cheapest_cuts(total, ranks, limit)]


def cut_levels(cells: int) -> NDArray[np.int64]:
    """How deep in the recursion each boundary between cells lies.

    A range of cells splits into its first half (rounded down) and the rest, as METIS numbers the
    parts of a recursive bisection. int64 [cells + 1]; 1 is the first bisection, 0 the two ends.
    """
    levels = np.zeros(cells + 1, np.int64)

    def split(low: int, high: int, level: int) -> None:
        if high - low < 2:
            return
        middle = low + (high - low) // 2
        levels[middle] = level
        split(low, middle, level + 1)
        split(middle, high, level + 1)

    split(0, cells, 1)
    return levels


def _smallest_maximum(total: NDArray[np.float64], ranks: int) -> float:
    """The least work that the busiest of `ranks` runs can have, by bisection on the answer."""
    low, high = float(np.diff(total).max()), float(total[-1])
    low = max(low, high / ranks)
    for _ in range(50):
        middle = (low + high) / 2
        if _fits(total, ranks, middle):
            high = middle
        else:
            low = middle
    return high


def _fits(total: NDArray[np.float64], ranks: int, limit: float) -> bool:
    """Whether runs of at most `limit` work, filled greedily, reach the end."""
    cell, last = 0, len(total) - 1
    for _ in range(ranks):
        cell = int(np.searchsorted(total, total[cell] + limit, side="right")) - 1
        if cell == last:
            return True
    return False


def _cheapest_cuts(total: NDArray[np.float64], ranks: int, limit: float) -> NDArray[np.int64]:
    """Cells at which to cut: no run above `limit`, the cuts as high in the recursion as possible.

    Dynamic programme over (runs so far, cell of the last cut). A cut costs 2 to its level, so that
    no number of high cuts is traded for one far below; a small term prefers even runs among equals.
    """
    cells = len(total) - 1
    work = total[None, :] - total[:, None]
    after = np.arange(cells + 1)
    allowed = (work <= limit * (1 + 1e-9)) & (after[None, :] > after[:, None])
    mean = max(total[-1] / ranks, np.finfo(np.float64).tiny)
    step = np.where(allowed, 1e-3 * (work / mean - 1) ** 2, np.inf)
    step[:, :cells] += np.exp2(cut_levels(cells)[:cells])[None, :]
    cost = np.full(cells + 1, np.inf)
    cost[0] = 0.0
    came_from = np.zeros((ranks, cells + 1), np.int64)
    for rank in range(ranks):
        reached = cost[:, None] + step
        came_from[rank] = reached.argmin(axis=0)
        cost = reached.min(axis=0)
    cuts = np.full(ranks + 1, cells, np.int64)
    for rank in reversed(range(ranks)):
        cuts[rank] = came_from[rank, cuts[rank + 1]]
    return cuts


def _cut_evenly(
    offsets: NDArray[np.int64], total: NDArray[np.float64], ranks: int
) -> NDArray[np.int64]:
    """Boundaries at equal shares of the work, inside cells where need be; no run is empty."""
    vertices = int(offsets[-1])
    # A cell without work must not swallow ranks: every vertex counts a little.
    position = total + offsets * (max(total[-1], 1.0) * 1e-9 / vertices)
    shares = np.linspace(0.0, position[-1], ranks + 1)
    cuts = np.rint(np.interp(shares, position, offsets)).astype(np.int64)
    steps = np.arange(ranks + 1)
    ascending = np.maximum.accumulate(cuts - steps) + steps
    return np.minimum(ascending, vertices - steps[::-1])
