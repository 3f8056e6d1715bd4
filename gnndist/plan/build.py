"""From a rank's rows to its plan: L, S and R, and who exchanges how many messages with whom.

    out = L · H  +  R · exchange(S · H)

A plan says nothing of features, devices or processes. Ranks agree on it by one swap of sparse
matrices (`request` → swap → `assemble`); the plans of all ranks can as well be built in one
process (`build_all`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnndist.plan.matrix import Matrix
from gnndist.plan.messages import CutEdges, Request, covering_request, plain_request


@dataclass(frozen=True, kw_only=True)
class RankRows:
    """The rows of the adjacency that a rank computes, with global column ids."""

    rank: int
    runs: NDArray[np.int64]
    """[ranks + 1] rank r owns the global ids runs[r]..runs[r + 1] − 1"""
    rows: NDArray[np.int64]
    """[n] global ids, all owned; ascending unless restricted to others"""
    adjacency: Matrix
    """n rows, all vertices as columns"""

    @property
    def start(self) -> int:
        return int(self.runs[self.rank])

    @property
    def stop(self) -> int:
        return int(self.runs[self.rank + 1])

    def halo_size(self) -> int:
        """Remote vertices that the rows read."""
        columns = self.adjacency.indices
        return len(np.unique(columns[(columns < self.start) | (columns >= self.stop)]))

    def restricted(self, rows: NDArray[np.int64]) -> "RankRows":
        """Only these rows, in this order (global ids, a subset of `rows`, which ascend)."""
        at = np.searchsorted(self.rows, rows)
        matrix = self.adjacency
        length = np.diff(matrix.indptr)[at]
        indptr = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        entry = np.arange(indptr[-1]) + np.repeat(matrix.indptr[at] - indptr[:-1], length)
        return RankRows(
            rank=self.rank,
            runs=self.runs,
            rows=rows,
            adjacency=Matrix(
                indptr=indptr,
                indices=matrix.indices[entry],
                values=None if matrix.values is None else matrix.values[entry],
                num_columns=matrix.num_columns,
            ),
        )


@dataclass(frozen=True, kw_only=True)
class RankPlan:
    """One rank's part of an aggregation from `columns` to `rows`."""

    rank: int
    runs: NDArray[np.int64]
    rows: NDArray[np.int64]
    """[n_out] global ids of the rows computed"""
    columns: NDArray[np.int64]
    """[n_in] global ids of the owned rows read, boundary first; holds every member of `rows`"""
    num_boundary: int
    """S reads only the first `num_boundary` columns: the others are ready to be computed while
    messages are on their way"""
    num_receiving: int
    """R adds only into the first `num_receiving` rows"""
    row_at: NDArray[np.int64]
    """[n_out] position of each row among the columns"""
    local: Matrix
    """L: n_out × n_in"""
    send: Matrix
    """S: messages sent × n_in, ordered by receiving rank"""
    receive: Matrix
    """R: n_out × messages received, ordered by sending rank"""
    send_counts: NDArray[np.int64]
    """[ranks] messages to each rank"""
    receive_counts: NDArray[np.int64]
    """[ranks] messages from each rank"""
    halo: NDArray[np.int64] | None
    """[messages received] global id of each message's vertex; None if some are sums"""

    @property
    def square(self) -> bool:
        """Whether the rows are the columns, in the same order."""
        return np.array_equal(self.row_at, np.arange(len(self.columns)))


def request(part: RankRows, *, cover: bool) -> list[Request]:
    """What this rank asks of each rank (of itself nothing), by owner of the source."""
    matrix = part.adjacency
    cut = np.flatnonzero((matrix.indices < part.start) | (matrix.indices >= part.stop))
    owner = np.searchsorted(part.runs, matrix.indices[cut], side="right") - 1
    by_owner = np.argsort(owner, kind="stable")
    order, owner = cut[by_owner], owner[by_owner]
    row = np.searchsorted(matrix.indptr, order, side="right") - 1
    bounds = np.searchsorted(owner, np.arange(len(part.runs)))
    form = covering_request if cover else plain_request
    requests = []
    for peer in range(len(part.runs) - 1):
        between = slice(bounds[peer], bounds[peer + 1])
        mine = order[between]
        values = None if matrix.values is None else matrix.values[mine]
        edges = CutEdges(row[between], matrix.indices[mine], values)
        requests.append(form(edges, matrix.num_columns))
    return requests


NEARLY_ALL = 0.9
"""From this share of the vertices on, a layer computes all of them: rows that are columns need no
copies, and one plan serves several layers."""


def assemble(
    part: RankRows,
    requests: Sequence[Request],
    asked: Sequence[Matrix],
    *,
    all_columns: bool,
    like: RankPlan | None = None,
) -> RankPlan:
    """The plan, once every rank's request to this one is known.

    Columns are ordered boundary first, then interior, each by global id. Where all owned vertices
    are read, the rows have the same order. It does not depend on how messages are formed: each
    source of a cut edge is sent, as it is or within a sum.

    Parameters
    ----------
    requests:
        by sending rank: what this rank asked for.
    asked:
        by receiving rank: the rows of S that it asked this rank for.
    all_columns:
        read from all owned vertices; otherwise only from those that some row or message needs.
    like:
        read the columns of this plan, in their order, instead: all owned vertices, of which these
        rows are a part.
    """
    matrix = part.adjacency
    row = matrix.row_of_entry()
    own = (matrix.indices >= part.start) & (matrix.indices < part.stop)
    sent = Matrix.stacked(asked, matrix.num_columns)
    boundary = np.unique(sent.indices)
    if like is not None:
        boundary, read = like.columns[: like.num_boundary], like.columns[like.num_boundary :]
    elif all_columns:
        boundary = np.union1d(boundary, part.rows[np.unique(row[~own])])
        read = np.arange(part.start, part.stop)
    else:
        read = np.unique(np.concatenate([part.rows, matrix.indices[own], sent.indices]))
    interior = read if like is not None else np.setdiff1d(read, boundary, assume_unique=True)
    columns = np.concatenate([boundary, interior])
    position = np.full(part.stop - part.start, -1, np.int32)
    position[columns - part.start] = np.arange(len(columns))
    rows = columns if all_columns else part.rows
    row_at = position[rows - part.start]
    new_row = position[part.rows - part.start] if all_columns else np.arange(len(rows))
    counts = np.array([r.send.num_rows for r in requests], np.int64)
    first = np.concatenate([[0], np.cumsum(counts)])
    weighted = matrix.values is not None
    receive = Matrix.from_entries(
        new_row[np.concatenate([r.row for r in requests])],
        np.concatenate([r.message + at for r, at in zip(requests, first, strict=False)]),
        np.concatenate([_values(r) for r in requests]) if weighted else None,
        (len(rows), int(first[-1])),
    )
    sources = Matrix.stacked([r.send for r in requests], matrix.num_columns)
    return RankPlan(
        rank=part.rank,
        runs=part.runs,
        rows=rows,
        columns=columns,
        num_boundary=len(boundary),
        num_receiving=int(np.flatnonzero(np.diff(receive.indptr)).max(initial=-1)) + 1,
        row_at=row_at.astype(np.int64),
        local=Matrix.from_entries(
            new_row[row[own]],
            position[matrix.indices[own] - part.start],
            None if matrix.values is None else matrix.values[own],
            (len(rows), len(columns)),
        ).sorted(),
        send=Matrix(
            indptr=sent.indptr,
            indices=position[sent.indices - part.start],
            values=sent.values,
            num_columns=len(columns),
        ),
        receive=receive,
        send_counts=np.array([a.num_rows for a in asked], np.int64),
        receive_counts=counts,
        halo=sources.indices if all(r.plain for r in requests) else None,
    )


def _values(request: Request) -> NDArray[np.float64]:
    return np.ones(len(request.row)) if request.values is None else request.values


def build_all(
    parts: Sequence[RankRows], *, cover: bool, all_columns: bool = True
) -> list[RankPlan]:
    """The plans of all ranks, in one process."""
    requests = [request(part, cover=cover) for part in parts]
    return [
        assemble(
            part,
            requests[rank],
            [asker[rank].send for asker in requests],
            all_columns=all_columns,
        )
        for rank, part in enumerate(parts)
    ]
