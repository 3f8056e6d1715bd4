"""GAT's attention: score_ij = leaky_relu(score_src_j + score_dst_i), a number an edge and head.

Forward, each row is computed by one thread, its neighbours in order. Backward, gradients for
sources go by the transposed matrix, one thread a source; each edge's score gradient is left at the
edge's own place, from where each destination sums its own. So there are no atomics, and results do
not depend on the number of threads.
"""

from typing import Any

import numpy as np
import torch
from numba import types
from torch import Tensor

from gnndist.kernels.arithmetic import multiply, multiply_add, sum_lanes
from gnndist.kernels.attention import (
    AttentionState,
    EdgeDropout,
    dropout_arguments,
    empty_state,
)
from gnndist.kernels.attention_torch import gat_backward_torch, gat_forward_torch
from gnndist.kernels.compiling import Kernel
from gnndist.kernels.csr import CSR
from gnndist.kernels.dense import FLOATS, check_matrix, check_output, flat, memory
from gnndist.kernels.hashing import hash_id
from gnndist.kernels.threads import run_chunks
from gnndist.kernels.tiles import (
    TILE,
    drop_edges,
    exponentials,
    identify,
    keep,
    soften,
    weighted_sums,
)
from gnndist.kernels.vector import item, load, load_first, opaque, prefetch, store, store_first
from gnndist.ranges import SPARSE, ranged


def _forward(
    indptr: Any,
    indices: Any,
    x: Any,
    x_stride: Any,
    score_src: Any,
    score_dst: Any,
    highest: Any,
    total: Any,
    out: Any,
    heads: Any,
    width: Any,
    slope: Any,
    destinations: Any,
    destination_start: Any,
    sources: Any,
    source_start: Any,
    key: Any,
    least: Any,
    scale: Any,
    continued: Any,
    first_row: Any,
    last_row: Any,
) -> None:
    weights = np.zeros(TILE * heads, x.dtype)
    kept = np.ones(TILE * heads, x.dtype)
    factors = np.empty(heads, x.dtype)
    for row in range(first_row, last_row):
        at = row * heads
        if not continued:
            highest[at : at + heads] = -np.inf
            total[at : at + heads] = 0.0
            out[at * width : (at + heads) * width] = 0.0
        row_words = hash_id(key, identify(destinations, destination_start, row))
        fresh = not continued
        first, stop = item(indptr, row), item(indptr, row + 1)
        while first < stop:
            count = min(TILE, stop - first)
            for n in range(count):
                source = item(indices, first + n)
                prefetch(x, source * x_stride)
                for head in range(heads):
                    score = item(score_dst, at + head) + item(score_src, source * heads + head)
                    weights[head * TILE + n] = score if score > 0.0 else slope * score
            soften(weights, count, heads, highest, total, at, factors)
            if least:
                drop_edges(
                    kept,
                    indices,
                    first,
                    count,
                    heads,
                    row_words,
                    sources,
                    source_start,
                    least,
                    scale,
                )
                for n in range(TILE * heads):
                    weights[n] *= kept[n]
            weighted_sums(
                indices,
                first,
                count,
                weights,
                x,
                x_stride,
                out,
                at * width,
                factors,
                fresh,
                heads,
                width,
            )
            fresh = False
            first += count


def _backward(
    indptr: Any,
    indices: Any,
    positions: Any,
    x: Any,
    x_stride: Any,
    score_src: Any,
    ends: Any,
    grad: Any,
    grad_stride: Any,
    grad_x: Any,
    grad_x_stride: Any,
    grad_src: Any,
    grad_edges: Any,
    heads: Any,
    width: Any,
    slope: Any,
    destinations: Any,
    destination_start: Any,
    sources: Any,
    source_start: Any,
    key: Any,
    least: Any,
    scale: Any,
    first_row: Any,
    last_row: Any,
) -> None:
    """For sources `first_row` … `last_row`, rows of the transposed matrix.

    ends [rows, 3, heads]: score_dst, shift and delta of destinations.
    """
    unit = 64 // x.itemsize
    weights = np.zeros(TILE * heads, x.dtype)
    kept = np.ones(TILE * heads, x.dtype)
    dots = np.empty(TILE * heads, x.dtype)
    for row in range(first_row, last_row):
        at = row * heads
        grad_src[at : at + heads] = 0.0
        grad_x[row * grad_x_stride : row * grad_x_stride + heads * width] = 0.0
        number = identify(sources, source_start, row)
        first, stop = item(indptr, row), item(indptr, row + 1)
        while first < stop:
            count = min(TILE, stop - first)
            for n in range(count):
                prefetch(grad, item(indices, first + n) * grad_stride)
            for head in range(heads):
                own_score = item(score_src, at + head)
                for n in range(count):
                    end = item(indices, first + n) * 3 * heads + head
                    score = own_score + item(ends, end)
                    score = score if score > 0.0 else slope * score
                    weights[head * TILE + n] = score - item(ends, end + heads)
                exponentials(weights, head * TILE, count)
            if least:
                for n in range(count):
                    destination = item(indices, first + n)
                    row_words = hash_id(key, identify(destinations, destination_start, destination))
                    keep(kept, n, hash_id(row_words, number), heads, least, scale)
            dots[:] = 0.0
            for head in range(heads):
                begin = head * width
                own, place = row * x_stride + begin, row * grad_x_stride + begin
                f = 0
                while f + 4 * unit <= width:
                    value = load(x, own + f, 4)
                    sums = load(grad_x, place + f, 4)
                    n = 0
                    while n < count:
                        k = head * TILE + n
                        g = load(grad, item(indices, first + n) * grad_stride + begin + f, 4)
                        dots[k] += sum_lanes(multiply(g, value))
                        sums = multiply_add(item(weights, k) * item(kept, k), g, sums)
                        n = opaque(n + 1)
                    store(grad_x, place + f, sums)
                    f += 4 * unit
                while f < width:
                    lanes = min(unit, width - f)
                    part = load_first(x, own + f, 1, lanes)
                    rest = load_first(grad_x, place + f, 1, lanes)
                    n = 0
                    while n < count:
                        k = head * TILE + n
                        source = item(indices, first + n) * grad_stride + begin + f
                        g1 = load_first(grad, source, 1, lanes)
                        dots[k] += sum_lanes(multiply(g1, part))
                        rest = multiply_add(item(weights, k) * item(kept, k), g1, rest)
                        n = opaque(n + 1)
                    store_first(grad_x, place + f, rest, lanes)
                    f += unit
            for head in range(heads):
                total = grad_src[at + head]
                own_score = item(score_src, at + head)
                for n in range(count):
                    k = head * TILE + n
                    end = item(indices, first + n) * 3 * heads + head
                    change = item(kept, k) * item(dots, k) - item(ends, end + 2 * heads)
                    change *= item(weights, k)
                    if own_score + item(ends, end) <= 0.0:
                        change *= slope
                    total += change
                    grad_edges[item(positions, first + n) * heads + head] = change
                grad_src[at + head] = total
            first += count


def _sum_edges(
    indptr: Any, grad_edges: Any, grad_dst: Any, heads: Any, first_row: Any, last_row: Any
) -> None:
    """Add to each destination's gradient those of its edges."""
    for row in range(first_row, last_row):
        for entry in range(item(indptr, row), item(indptr, row + 1)):
            for head in range(heads):
                grad_dst[row * heads + head] += item(grad_edges, entry * heads + head)


def _signatures(dtype: torch.dtype) -> tuple[Any, Any, Any]:
    scalar, n = FLOATS[dtype], types.int64
    floats, ints, longs = scalar[::1], types.int32[::1], types.int64[::1]
    shape = (n, n, scalar)
    dropout = (longs, n, longs, n, types.uint64, n, scalar)
    forward = types.void(
        longs, ints, floats, n, *([floats] * 5), *shape, *dropout, types.boolean, n, n
    )
    matrix = (floats, n)
    backward = types.void(
        *(longs, ints, longs, *matrix, floats, floats, *matrix, *matrix, floats, floats),
        *(*shape, *dropout, n, n),
    )
    return forward, backward, types.void(longs, floats, floats, n, n, n)


FORWARD = Kernel(_forward, {dtype: _signatures(dtype)[0] for dtype in FLOATS})
BACKWARD = Kernel(_backward, {dtype: _signatures(dtype)[1] for dtype in FLOATS})
SUM_EDGES = Kernel(_sum_edges, {dtype: _signatures(dtype)[2] for dtype in FLOATS})


@ranged(SPARSE)
def gat_forward(
    csr: CSR,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    *,
    slope: float = 0.2,
    dropout: EdgeDropout | None = None,
    state: AttentionState | None = None,
    out: Tensor | None = None,
) -> AttentionState:
    """Take a matrix's neighbours into a running softmax.

    Parameters
    ----------
    csr:
        [rows, cols]: row i holds the sources that i attends to; its values play no part.
    x:
        [cols, heads, D], what is summed.
    score_src, score_dst:
        [cols, heads] and [rows, heads]: score_ij = leaky_relu(score_src_j + score_dst_i).
    slope:
        of leaky_relu below 0.
    dropout:
        leaves edges out of `out`, not out of `total`.
    state:
        another matrix's sums for the same rows, to be continued in place.
    out:
        [rows, heads, D] contiguous memory for a new state's `out`.

    Returns
    -------
    AttentionState
        whose `finish` gives the output, and whose `shift` the backward pass needs.
    """
    rows, heads, width = _check(csr, x, score_src, score_dst)
    arguments = dropout_arguments(dropout, csr)
    fresh = state is None
    state = empty_state(rows, x, out) if state is None else state
    check_output(state.highest, (rows, heads), x)
    check_output(state.total, (rows, heads), x)
    check_output(state.out.view(rows, heads * width), (rows, heads * width), x)
    if x.device.type != "cpu" or x.dtype not in FLOATS:
        return gat_forward_torch(csr, x, score_src, score_dst, slope, dropout, state, fresh)
    indptr, indices, _ = csr.arrays()
    kernel = FORWARD(x.dtype)
    first = (
        *(indptr, indices, *flat(x.flatten(1)), memory(score_src), memory(score_dst)),
        *(memory(state.highest), memory(state.total), memory(state.out), heads, width, slope),
    )

    def task(first_row: int, last_row: int) -> None:
        kernel(*first, *arguments, not fresh, first_row, last_row)

    run_chunks(task, csr.chunks(heads * (width + 4)))
    return state


@ranged(SPARSE)
def gat_backward(
    csr: CSR,
    grad: Tensor,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    shift: Tensor,
    delta: Tensor,
    *,
    slope: float = 0.2,
    dropout: EdgeDropout | None = None,
    grad_dst: Tensor | None = None,
    grad_x: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of attention for one matrix's x, score_src and score_dst.

    Call it once for each matrix that was taken in, with the same grad, shift and delta:
    weight_ij = exp(score_ij - shift_i); score's gradient = weight (kept ⟨grad_i, x_j⟩ - delta_i).

    Parameters
    ----------
    csr, x, score_src, score_dst, slope, dropout:
        as forward.
    grad:
        [rows, heads, D], of the finished output.
    shift:
        [rows, heads], `AttentionState.shift()` after the last matrix.
    delta:
        [rows, heads], `attention_delta(grad, finished output)`.
    grad_dst:
        [rows, heads] to add to, of a call for another matrix.
    grad_x:
        [cols, heads, D] contiguous memory to write to.

    Returns
    -------
    grad_x, grad_src, grad_dst
        [cols, heads, D], [cols, heads], [rows, heads].
    """
    rows, heads, width = _check(csr, x, score_src, score_dst)
    arguments = dropout_arguments(dropout, csr)
    check_matrix(grad.flatten(1), rows, "grad")
    grad_dst = torch.zeros_like(score_dst) if grad_dst is None else grad_dst
    check_output(grad_dst, (rows, heads), x)
    grad_x = x.new_empty(x.shape) if grad_x is None else grad_x
    check_output(grad_x.view(csr.num_cols, heads * width), (csr.num_cols, heads * width), x)
    if x.device.type != "cpu" or x.dtype not in FLOATS:
        return gat_backward_torch(
            csr, grad, x, score_src, score_dst, shift, delta, slope, dropout, grad_dst, grad_x
        )
    transposed, positions = csr.transpose_positions()
    indptr, indices, _ = transposed.arrays()
    ends = torch.stack([score_dst, shift, delta], dim=1)
    grad_src = x.new_empty(csr.num_cols, heads)
    grad_edges = memory(x.new_empty(csr.nnz, heads))
    grad_flat, grad_stride = flat(grad.flatten(1))
    kernel, sum_edges = BACKWARD(x.dtype), SUM_EDGES(x.dtype)
    first = (
        *(indptr, indices, positions.numpy(), *flat(x.flatten(1)), memory(score_src)),
        *(memory(ends), grad_flat, grad_stride, *flat(grad_x.flatten(1)), memory(grad_src)),
        *(grad_edges, heads, width, slope),
    )

    def task(first_row: int, last_row: int) -> None:
        kernel(*first, *arguments, first_row, last_row)

    run_chunks(task, transposed.chunks(2 * heads * (width + 4)))
    own, sums = csr.arrays()[0], memory(grad_dst)
    run_chunks(lambda a, b: sum_edges(own, grad_edges, sums, heads, a, b), csr.chunks(heads))
    return grad_x, grad_src, grad_dst


def _check(csr: CSR, x: Tensor, score_src: Tensor, score_dst: Tensor) -> tuple[int, int, int]:
    if x.dim() != 3 or x.shape[0] != csr.num_cols or not x.dtype.is_floating_point:
        raise ValueError(
            f"x is {x.dtype} {tuple(x.shape)}; floating-point [{csr.num_cols}, heads, D] is needed"
        )
    heads, width = x.shape[1:]
    for name, scores, count in (
        ("score_src", score_src, csr.num_cols),
        ("score_dst", score_dst, csr.num_rows),
    ):
        if scores.shape != (count, heads) or scores.dtype != x.dtype:
            raise ValueError(
                f"{name} is {scores.dtype} {tuple(scores.shape)}; {x.dtype} "
                f"{(count, heads)} is needed"
            )
    return csr.num_rows, heads, width
