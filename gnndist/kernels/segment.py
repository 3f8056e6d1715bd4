"""Maximum over neighbours, and its gradient.

Where several neighbours share the maximum, the gradient is divided evenly among them, as in
`torch.scatter_reduce`. After a ReLU such ties (of zeros) are the rule, and an even share is what
does not depend on how neighbours are split over ranks. So the number of ties is kept, not a
position.
"""

from typing import Any

import numpy as np
import torch
from numba import types
from torch import Tensor

from gnndist.kernels.arithmetic import add, greater, tally, where_equal, where_positive_or
from gnndist.kernels.compiling import Kernel
from gnndist.kernels.csr import CSR
from gnndist.kernels.dense import FLOATS, check_matrix, check_output, flat
from gnndist.kernels.threads import run_chunks
from gnndist.kernels.vector import fill, item, load_first, opaque, store_first, zeros
from gnndist.ranges import SPARSE, ranged

BLOCK = 2
"""Units of 64 bytes of features kept in registers, once for each of two sums."""


def _maximum(
    indptr: Any,
    indices: Any,
    x: Any,
    x_stride: Any,
    out: Any,
    out_stride: Any,
    ties: Any,
    ties_stride: Any,
    width: Any,
    fresh: Any,
    first_row: Any,
    last_row: Any,
) -> None:
    block = BLOCK * 64 // x.itemsize
    nothing = fill(x, BLOCK, -np.inf)
    for row in range(first_row, last_row):
        first, last = item(indptr, row), item(indptr, row + 1)
        for f in range(0, width, block):
            lanes = min(block, width - f)
            best = nothing
            count = zeros(x, BLOCK)
            if not fresh:
                best = load_first(out, row * out_stride + f, BLOCK, lanes)
                count = load_first(ties, row * ties_stride + f, BLOCK, lanes)
                # without a neighbour so far, out holds 0
                best = where_positive_or(count, best, nothing)
            entry = first
            while entry < last:
                place = item(indices, entry) * x_stride + f
                value = load_first(x, place, BLOCK, lanes)
                count = tally(value, best, count)
                best = greater(value, best)
                entry = opaque(entry + 1)
            best = where_positive_or(count, best, zeros(x, BLOCK))
            store_first(out, row * out_stride + f, best, lanes)
            store_first(ties, row * ties_stride + f, count, lanes)


def _share(
    indptr: Any,
    indices: Any,
    x: Any,
    x_stride: Any,
    out: Any,
    out_stride: Any,
    share: Any,
    share_stride: Any,
    grad_x: Any,
    grad_stride: Any,
    width: Any,
    fresh: Any,
    first_row: Any,
    last_row: Any,
) -> None:
    block = BLOCK * 64 // x.itemsize
    for row in range(first_row, last_row):
        first, last = item(indptr, row), item(indptr, row + 1)
        for f in range(0, width, block):
            lanes = min(block, width - f)
            value = load_first(x, row * x_stride + f, BLOCK, lanes)
            total = zeros(x, BLOCK)
            if not fresh:
                total = load_first(grad_x, row * grad_stride + f, BLOCK, lanes)
            entry = first
            while entry < last:
                destination = item(indices, entry)
                best = load_first(out, destination * out_stride + f, BLOCK, lanes)
                part = load_first(share, destination * share_stride + f, BLOCK, lanes)
                total = add(total, where_equal(value, best, part))
                entry = opaque(entry + 1)
            store_first(grad_x, row * grad_stride + f, total, lanes)


def _signature(dtype: torch.dtype, matrices: int) -> Any:
    floats, n = FLOATS[dtype][::1], types.int64
    pairs = [floats, n] * matrices
    return types.void(types.int64[::1], types.int32[::1], *pairs, n, types.boolean, n, n)


MAXIMUM = Kernel(_maximum, {dtype: _signature(dtype, 3) for dtype in FLOATS})
SHARE = Kernel(_share, {dtype: _signature(dtype, 4) for dtype in FLOATS})


@ranged(SPARSE)
def segment_max(
    csr: CSR, x: Tensor, state: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """The largest value among each row's neighbours, feature by feature.

    Parameters
    ----------
    csr:
        [rows, cols]; its values play no part.
    x:
        float [cols, F].
    state:
        (out, ties) of another matrix's call: its neighbours count as well. Written to in place.

    Returns
    -------
    out
        [rows, F]; 0 for a row without neighbours. NaN where a neighbour is NaN.
    ties
        [rows, F] of x's type: how many neighbours have that value; 0 without neighbours.
    """
    check_matrix(x, csr.num_cols, "x")
    shape = (csr.num_rows, x.shape[1])
    out, ties = (x.new_empty(shape), x.new_empty(shape)) if state is None else state
    check_output(out, shape, x)
    check_output(ties, shape, x)
    if x.device.type != "cpu" or x.dtype not in FLOATS:
        return maximum_torch(csr, x, out, ties, state is None)
    indptr, indices, _ = csr.arrays()
    arguments = (*flat(x), *flat(out), *flat(ties), shape[1], state is None)
    kernel = MAXIMUM(x.dtype)
    run_chunks(lambda a, b: kernel(indptr, indices, *arguments, a, b), csr.chunks(shape[1]))
    return out, ties


@ranged(SPARSE)
def segment_max_backward(
    csr: CSR,
    grad: Tensor,
    x: Tensor,
    out: Tensor,
    ties: Tensor,
    grad_x: Tensor | None = None,
    accumulate: bool = False,
) -> Tensor:
    """The gradient for x, [cols, F], of `segment_max`, by the transposed matrix.

    Parameters
    ----------
    csr, x:
        as in the forward call; call once for each where several made the result.
    grad, out, ties:
        [rows, F]: the gradient of the final out, and the final state.
    grad_x:
        [cols, F] to write to.
    accumulate:
        add to what grad_x holds.
    """
    check_matrix(x, csr.num_cols, "x")
    check_matrix(grad, csr.num_rows, "grad")
    if grad_x is None:
        if accumulate:
            raise ValueError("accumulate needs grad_x")
        grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    check_output(grad_x, (csr.num_cols, x.shape[1]), x)
    share = grad / ties.clamp(min=1)
    if x.device.type != "cpu" or x.dtype not in FLOATS:
        return share_torch(csr, x, out, share, grad_x, not accumulate)
    transposed = csr.transpose()
    indptr, indices, _ = transposed.arrays()
    width = x.shape[1]
    arguments = (*flat(x), *flat(out), *flat(share), *flat(grad_x), width, not accumulate)
    kernel = SHARE(x.dtype)
    run_chunks(lambda a, b: kernel(indptr, indices, *arguments, a, b), transposed.chunks(2 * width))
    return grad_x


def maximum_torch(
    csr: CSR, x: Tensor, out: Tensor, ties: Tensor, fresh: bool
) -> tuple[Tensor, Tensor]:
    rows = csr.row_ids()[:, None].expand(-1, x.shape[1])
    values = x[csr.indices.long()]
    if fresh:
        ties.zero_()
    before = torch.where(ties > 0, out, -torch.inf)
    best = before.scatter_reduce(0, rows, values, "amax")
    equal = (values == best.gather(0, rows)).to(x.dtype)
    ties.copy_(torch.where(before == best, ties, 0).scatter_add(0, rows, equal))
    # NaN equals nothing, but has been met
    ties.masked_fill_(best.isnan(), 1)
    out.copy_(torch.where(ties > 0, best, 0))
    return out, ties


def share_torch(
    csr: CSR, x: Tensor, out: Tensor, share: Tensor, grad_x: Tensor, fresh: bool
) -> Tensor:
    rows, columns = csr.row_ids(), csr.indices.long()
    parts = torch.where(x[columns] == out[rows], share[rows], 0)
    return (grad_x.zero_() if fresh else grad_x).index_add_(0, columns, parts)
