"""How many rows, edges and messages every rank has: the sizes of all plans without the plans.

Streams the store once for a number of ranks, rank by rank; holds one rank's cut edges, a few bytes
a vertex, and a number for each pair of ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnndist.inspection.chunks import chunks
from gnndist.plan.cover import minimum_vertex_cover
from gnndist.store import Store

Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Messages:
    """One way of carrying a view's cut edges: plain rows, or a minimum vertex cover."""

    pairs: Counts
    """[ranks, ranks] messages from the rank of the row to the rank of the column"""
    send_entries: Counts
    """[ranks] entries of S"""
    receive_entries: Counts
    """[ranks] entries of R"""

    @property
    def sent(self) -> Counts:
        """[ranks] messages that each rank sends (forward)."""
        sent: Counts = self.pairs.sum(axis=1)
        return sent

    @property
    def received(self) -> Counts:
        """[ranks] messages that each rank receives (forward)."""
        received: Counts = self.pairs.sum(axis=0)
        return received

    @property
    def total(self) -> int:
        return int(self.pairs.sum())


@dataclass(frozen=True, kw_only=True)
class ViewCounts:
    """The aggregation from `columns` to `rows` on every rank; the rest as in `RankPlan`."""

    rows: Counts
    """[ranks]"""
    columns: Counts
    """[ranks]"""
    local_edges: Counts
    """[ranks] entries of L"""
    cut_edges: Counts
    """[ranks] edges from other ranks' vertices"""
    unlooped: Counts
    """[ranks] rows without an edge to themselves: what added self-loops add to L"""
    senders: Counts
    """[ranks] columns that some message reads"""
    receivers: Counts
    """[ranks] rows that some message adds into"""
    boundary: Counts
    """[ranks] owned vertices that are either"""
    plain: Messages
    cover: Messages


class _Cut(NamedTuple):
    """A rank's cut edges, by row and within a row by source."""

    row: NDArray[np.int32]
    source: NDArray[np.int32]


@dataclass(eq=False)
class _View:
    """A view's counts in the making."""

    rows: NDArray[np.bool_] | None
    """[N] vertices computed; None: all"""
    columns: NDArray[np.bool_] | None
    ranks: int
    vertices: int
    found: dict[str, Counts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = ("rows", "columns", "local_edges", "cut_edges", "unlooped")
        self.found = {name: np.zeros(self.ranks, np.int64) for name in names}
        self.plain = _new_messages(self.ranks)
        self.cover = _new_messages(self.ranks)
        self.sends = np.zeros(self.vertices, bool)
        self.receives = np.zeros(self.vertices, bool)

    def finish(self, runs: Counts) -> ViewCounts:
        return ViewCounts(
            **self.found,
            senders=_per_rank(self.sends, runs),
            receivers=_per_rank(self.receives, runs),
            boundary=_per_rank(self.sends | self.receives, runs),
            plain=self.plain,
            cover=self.cover,
        )


def count_views(
    store: Store,
    runs: Counts,
    views: Sequence[tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]],
) -> list[ViewCounts]:
    """The counts of several views of one store, for ranks that own the given runs.

    Parameters
    ----------
    runs:
        [ranks + 1] rank r owns the global ids runs[r]..runs[r + 1] − 1.
    views:
        (rows computed, columns read) as [N] masks; None means all vertices.
    """
    ranks, vertices = len(runs) - 1, store.num_vertices
    owner = np.repeat(np.arange(ranks, dtype=np.int32), np.diff(runs))
    making = [_View(rows, columns, ranks, vertices) for rows, columns in views]
    scratch = np.zeros(vertices, np.int32)
    for rank in range(ranks):
        start, stop = int(runs[rank]), int(runs[rank + 1])
        cuts: list[list[_Cut]] = [[] for _ in making]
        for chunk in chunks(store, start, stop):
            own = (chunk.source >= start) & (chunk.source < stop)
            loop = chunk.row == chunk.source
            for view, cut in zip(making, cuts, strict=True):
                local, away, loops = own, ~own, loop
                if view.rows is not None:
                    computed = view.rows[chunk.row]
                    local, away, loops = own & computed, away & computed, loop & computed
                view.found["local_edges"][rank] += np.count_nonzero(local)
                view.found["unlooped"][rank] -= np.count_nonzero(loops)
                cut.append(
                    _Cut(chunk.row[away].astype(np.int32), chunk.source[away].astype(np.int32))
                )
        for view, pieces in zip(making, cuts, strict=True):
            rows = _size(view.rows, start, stop)
            view.found["rows"][rank] = rows
            view.found["columns"][rank] = _size(view.columns, start, stop)
            view.found["unlooped"][rank] += rows
            if pieces:
                _count_cut(view, rank, pieces, owner, scratch)
    return [view.finish(runs) for view in making]


def _count_cut(
    view: _View, rank: int, pieces: list[_Cut], owner: NDArray[np.int32], scratch: NDArray[np.int32]
) -> None:
    """Count the messages that one rank receives in a view.

    Bipartite graphs with different peers share no vertex when a row counts once a peer, so one
    minimum vertex cover of them all is one of each.
    """
    row = np.concatenate([piece.row for piece in pieces])
    source = np.concatenate([piece.source for piece in pieces])
    view.found["cut_edges"][rank] = len(row)
    if len(row) == 0:
        return
    view.receives[row] = True
    view.sends[source] = True
    peer = owner[source]
    # Sources ascend within a row, and so do their owners: equal (row, peer) are neighbours.
    new = np.ones(len(row), bool)
    new[1:] = (row[1:] != row[:-1]) | (peer[1:] != peer[:-1])
    pair = np.cumsum(new) - 1
    sources, column = _distinct(source, scratch)
    ranks = len(view.plain.send_entries)
    by_peer = np.bincount(owner[sources], minlength=ranks)
    view.plain.pairs[:, rank] = by_peer
    view.plain.send_entries[:] += by_peer
    view.plain.receive_entries[rank] = len(row)

    cover = minimum_vertex_cover(pair, column, int(pair[-1]) + 1, len(sources))
    sent = cover.columns[column]
    summed = np.zeros(int(pair[-1]) + 1, bool)
    summed[pair[~sent]] = True
    as_they_are = np.bincount(owner[sources[cover.columns]], minlength=ranks)
    sums = np.bincount(peer[new][summed], minlength=ranks)
    view.cover.pairs[:, rank] = as_they_are + sums
    view.cover.send_entries[:] += as_they_are + np.bincount(peer[~sent], minlength=ranks)
    view.cover.receive_entries[rank] = np.count_nonzero(sent) + sums.sum()


def _distinct(
    ids: NDArray[np.int32], scratch: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As np.unique with its inverse, without sorting where ids are many; `scratch` [N] is zero."""
    if 16 * len(ids) < len(scratch):
        few, inverse = np.unique(ids, return_inverse=True)
        return few.astype(np.int64), inverse.astype(np.int64)
    scratch[ids] = 1
    distinct = np.flatnonzero(scratch).astype(np.int64)
    scratch[distinct] = np.arange(len(distinct))
    position = scratch[ids].astype(np.int64)
    scratch[distinct] = 0
    return distinct, position


def _new_messages(ranks: int) -> Messages:
    return Messages(
        pairs=np.zeros((ranks, ranks), np.int64),
        send_entries=np.zeros(ranks, np.int64),
        receive_entries=np.zeros(ranks, np.int64),
    )


def _size(mask: NDArray[np.bool_] | None, start: int, stop: int) -> int:
    return stop - start if mask is None else int(np.count_nonzero(mask[start:stop]))


def _per_rank(mask: NDArray[np.bool_], runs: Counts) -> Counts:
    total = np.concatenate([[0], np.cumsum(mask)])
    return np.diff(total[runs])
