"""A linear aggregation on one rank as sparse matrices on a device: L, S, R and their transposes.

Every linear aggregation here is diag(a) · A · diag(b), with A the (weighted) adjacency and a, b
functions of a vertex's in-degree. Both ends of an edge are scaled by their owners, so no rank
needs another's degrees: L = diag(a) A_L diag(b), S = A_S diag(b), R = diag(a) A_R.
"""

import itertools
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from gnndist.comm import Comm
from gnndist.errors import ConfigError, DataError
from gnndist.exchange import Exchange
from gnndist.kernels import CSR
from gnndist.plan import Matrix, RankPlan, RankRows

Norm = Literal["sum", "mean", "symmetric"]


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """Which linear aggregation.

    Raises
    ------
    ConfigError
        for a norm that does not exist.
    """

    norm: Norm = "sum"
    """sum: A; mean: A divided by the number of in-neighbours; symmetric: D^-½ A D^-½ with D the
    weighted in-degree (Kipf and Welling 2017)"""
    self_loops: bool = False
    """give every vertex that lacks one an edge of weight 1 to itself"""
    weighted: bool = True
    """use the edge weights of the graph, if it has any"""

    def __post_init__(self) -> None:
        if self.norm not in get_args(Norm):
            raise ConfigError(f"norm {self.norm!r}: allowed are {', '.join(get_args(Norm))}")


@dataclass(frozen=True, kw_only=True)
class Degrees:
    """In-degrees of all owned vertices."""

    count: NDArray[np.float64]
    """[owned] in-neighbours"""
    weight: NDArray[np.float64]
    """[owned] their weights' sum"""
    loop: NDArray[np.bool_]
    """[owned] whether the vertex has an edge to itself"""

    @classmethod
    def of(cls, part: RankRows) -> "Degrees":
        matrix = part.adjacency
        row = matrix.row_of_entry()
        own = part.rows[row] == matrix.indices
        loop = np.zeros(len(part.rows), bool)
        loop[row[own]] = True
        count = np.diff(matrix.indptr).astype(np.float64)
        weight = count
        if matrix.values is not None:
            sums = np.bincount(row, weights=matrix.values, minlength=len(part.rows))
            weight = sums.astype(np.float64)
        return cls(count=count, weight=weight, loop=loop)

    def scales(self, aggregation: Aggregation) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """a and b, [owned] each."""
        added = (~self.loop if aggregation.self_loops else np.zeros_like(self.loop)).astype(float)
        ones = np.ones_like(self.count)
        with np.errstate(divide="ignore", invalid="ignore"):
            if aggregation.norm == "mean":
                degree = self.count + added
                return np.where(degree > 0, 1 / degree, 0.0), ones
            if aggregation.norm == "symmetric":
                degree = (self.weight if aggregation.weighted else self.count) + added
                root = np.where(degree == 0, 0.0, degree**-0.5)
                return root, root
        return ones, ones


@dataclass(frozen=True, kw_only=True)
class Operators:
    """One aggregation, forward and backward. Shapes as in `RankPlan`."""

    local: CSR
    """L"""
    send: CSR
    """S"""
    receive: CSR
    """R"""
    local_t: CSR
    send_t: CSR
    receive_t: CSR
    exchange: Exchange
    reverse: Exchange
    num_boundary: int
    """S reads only the first rows of its input"""
    num_receiving: int
    """R adds only into the first rows of the output"""
    row_at: torch.Tensor | None
    """[n_out] where each output row stands among the inputs; None: they are the same rows"""

    @property
    def nnz(self) -> int:
        """Entries multiplied in one forward pass."""
        return self.local.nnz + self.send.nnz + self.receive.nnz


def build_operators(
    plan: RankPlan,
    degrees: Degrees,
    aggregation: Aggregation,
    comm: Comm,
    dtype: torch.dtype,
    device: torch.device,
    *,
    overlap: bool = True,
) -> Operators:
    """The matrices of an aggregation on `device`, their values in `dtype`.

    Raises
    ------
    DataError
        on every rank, if the symmetric norm meets a vertex whose edge weights sum to less than 0.
    """
    start = plan.runs[plan.rank]
    a, b = degrees.scales(aggregation)
    if aggregation.norm == "symmetric" and aggregation.weighted:
        _refuse_negative(degrees.weight, a, int(start), comm)
    row_scale, column_scale = a[plan.rows - start], b[plan.columns - start]
    own = plan.local
    if aggregation.self_loops:
        missing = np.flatnonzero(~degrees.loop[plan.rows - start])
        own = _with_loops(own, missing, plan.row_at)

    def operator(
        matrix: Matrix,
        row_scale: NDArray[np.float64] | None,
        column_scale: NDArray[np.float64] | None,
    ) -> CSR:
        weights = matrix.values if aggregation.weighted else None
        values = _scaled(matrix, weights, row_scale, column_scale)
        return CSR(
            indptr=torch.from_numpy(matrix.indptr),
            indices=torch.from_numpy(matrix.indices.astype(np.int32, copy=False)),
            values=None if values is None else torch.from_numpy(values).to(dtype),
            num_cols=matrix.num_columns,
        )

    forward = (
        operator(own, row_scale, column_scale),
        operator(plan.send, None, column_scale),
        operator(plan.receive, row_scale, None),
    )
    local, send, receive = (matrix.to(device=device) for matrix in forward)
    local_t, send_t, receive_t = (matrix.transposed().to(device=device) for matrix in forward)
    exchange = Exchange(
        comm=comm,
        send_counts=tuple(plan.send_counts.tolist()),
        receive_counts=tuple(plan.receive_counts.tolist()),
        overlap=overlap,
    )
    return Operators(
        local=local,
        send=send,
        receive=receive,
        # Most graphs are undirected: then one pattern serves both directions, and where the norm
        # is symmetric too, one L.
        local_t=local_t.sharing(local),
        send_t=send_t,
        receive_t=receive_t,
        exchange=exchange,
        reverse=exchange.reversed(),
        num_boundary=plan.num_boundary,
        num_receiving=plan.num_receiving,
        row_at=None if plan.square else torch.from_numpy(plan.row_at).to(device),
    )


def _refuse_negative(
    weight: NDArray[np.float64], scale: NDArray[np.float64], start: int, comm: Comm
) -> None:
    """DataError on all ranks where some rank has no square root of a weighted degree."""
    wrong = np.flatnonzero(np.isnan(scale))
    found = [(start + int(at), float(weight[at])) for at in wrong[:1]]
    for vertex, total in itertools.chain(*comm.all_gather(found)):
        raise DataError(
            f"vertex {vertex} (in the store's order): the weights of its edges sum to {total:g}; "
            "the symmetric norm takes sums from 0 (other norms take any weights)"
        )


def _with_loops(
    matrix: Matrix, rows: NDArray[np.int64], column_of_row: NDArray[np.int64]
) -> Matrix:
    """The matrix with an entry 1 at (i, column_of_row[i]) for each of `rows`, columns sorted."""
    row = np.concatenate([matrix.row_of_entry(), rows])
    column = np.concatenate([matrix.indices, column_of_row[rows]])
    values = None if matrix.values is None else np.concatenate([matrix.values, np.ones(len(rows))])
    shape = (matrix.num_rows, matrix.num_columns)
    return Matrix.from_entries(row, column, values, shape).sorted()


def _scaled(
    matrix: Matrix,
    weights: NDArray[np.float64] | None,
    row_scale: NDArray[np.float64] | None,
    column_scale: NDArray[np.float64] | None,
) -> NDArray[np.float64] | None:
    """diag(row_scale) · matrix · diag(column_scale); None where nothing scales."""
    product: NDArray[np.float64] | None = None

    def multiply(factor: NDArray[np.float64]) -> NDArray[np.float64]:
        return factor if product is None else np.multiply(product, factor, out=product)

    # In place, one factor after the other: a large graph has room for few arrays of its edges.
    if row_scale is not None and not (row_scale == 1).all():
        product = multiply(np.repeat(row_scale, np.diff(matrix.indptr)))
    if column_scale is not None and not (column_scale == 1).all():
        product = multiply(column_scale[matrix.indices])
    if weights is not None:
        product = weights if product is None else multiply(weights)
    return product
