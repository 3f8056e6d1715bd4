"""GATv2's attention: score_ij = Σ_d a_d · leaky_relu(x_src_j + x_dst_i)_d, for each head.

Backward goes twice over the edges. By destinations: scores again, gradients for x_dst and a; each
edge's weight and score gradient are left at the edge's place, [nnz, heads] each, and gathered from
there by sources, with the transposed matrix. No atomics: results do not depend on the number of
threads.
"""

from typing import Any

import numpy as np
import torch
from numba import types
from torch import Tensor

from gnndist.kernels.arithmetic import (
    add,
    fused,
    leaky,
    leaky_slope,
    multiply,
    multiply_add,
    sum_lanes,
)
from gnndist.kernels.attention import (
    AttentionState,
    EdgeDropout,
    dropout_arguments,
    empty_state,
)
from gnndist.kernels.attention_torch import gatv2_backward_torch, gatv2_forward_torch
from gnndist.kernels.compiling import Kernel
from gnndist.kernels.csr import CSR
from gnndist.kernels.dense import FLOATS, check_matrix, check_output, flat, memory
from gnndist.kernels.hashing import hash_id
from gnndist.kernels.threads import even_chunks, run_chunks
from gnndist.kernels.tiles import (
    TILE,
    drop_edges,
    exponentials,
    identify,
    soften,
    weighted_sums,
)
from gnndist.kernels.vector import item, load_first, prefetch, store_first, zeros
from gnndist.ranges import SPARSE, ranged

SUM_ROWS = 1024
"""Rows summed into one partial gradient of a: fixed, so that sums do not depend on threads."""


def _forward(
    indptr: Any,
    indices: Any,
    x: Any,
    x_stride: Any,
    x_dst: Any,
    dst_stride: Any,
    attention: Any,
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
    unit = 64 // x.itemsize
    weights = np.empty(TILE * heads, x.dtype)
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
                prefetch(x, item(indices, first + n) * x_stride)
            weights[:] = 0.0
            for head in range(heads):
                begin = head * width
                for f in range(begin, begin + width, unit):
                    lanes = min(unit, begin + width - f)
                    a = load_first(attention, f, 1, lanes)
                    own = load_first(x_dst, row * dst_stride + f, 1, lanes)
                    for n in range(count):
                        value = load_first(x, item(indices, first + n) * x_stride + f, 1, lanes)
                        value = leaky(slope, add(value, own))
                        weights[head * TILE + n] += sum_lanes(multiply(a, value))
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


def _backward_destinations(
    indptr: Any,
    indices: Any,
    x: Any,
    x_stride: Any,
    x_dst: Any,
    dst_stride: Any,
    attention: Any,
    shift: Any,
    delta: Any,
    grad: Any,
    grad_stride: Any,
    grad_dst: Any,
    grad_attention: Any,
    edge_weights: Any,
    edge_grads: Any,
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
    """grad_dst [rows, heads, D] is added to; grad_attention [⌈rows / SUM_ROWS⌉, heads, D] too."""
    unit = 64 // x.itemsize
    weights = np.empty(TILE * heads, x.dtype)
    dots = np.empty(TILE * heads, x.dtype)
    kept = np.ones(TILE * heads, x.dtype)
    for row in range(first_row, last_row):
        at = row * heads
        partial = row // SUM_ROWS * heads * width
        row_words = hash_id(key, identify(destinations, destination_start, row))
        first, stop = item(indptr, row), item(indptr, row + 1)
        while first < stop:
            count = min(TILE, stop - first)
            for n in range(count):
                prefetch(x, item(indices, first + n) * x_stride)
            weights[:] = 0.0
            dots[:] = 0.0
            for head in range(heads):
                begin = head * width
                for f in range(begin, begin + width, unit):
                    lanes = min(unit, begin + width - f)
                    a = load_first(attention, f, 1, lanes)
                    own = load_first(x_dst, row * dst_stride + f, 1, lanes)
                    g = load_first(grad, row * grad_stride + f, 1, lanes)
                    for n in range(count):
                        k = head * TILE + n
                        value = load_first(x, item(indices, first + n) * x_stride + f, 1, lanes)
                        dots[k] += sum_lanes(multiply(g, value))
                        weights[k] += sum_lanes(multiply(a, leaky(slope, add(value, own))))
                for n in range(count):
                    weights[head * TILE + n] -= shift[at + head]
                exponentials(weights, head * TILE, count)
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
            for head in range(heads):
                for n in range(count):
                    k = head * TILE + n
                    edge = (first + n) * heads + head
                    dots[k] = weights[k] * (kept[k] * dots[k] - delta[at + head])
                    edge_grads[edge] = dots[k]
                    edge_weights[edge] = weights[k] * kept[k]
            for head in range(heads):
                begin = head * width
                for f in range(begin, begin + width, unit):
                    lanes = min(unit, begin + width - f)
                    own = load_first(x_dst, row * dst_stride + f, 1, lanes)
                    sums = zeros(x, 1)
                    to_a = load_first(grad_attention, partial + f, 1, lanes)
                    for n in range(count):
                        value = load_first(x, item(indices, first + n) * x_stride + f, 1, lanes)
                        value = add(value, own)
                        change = item(dots, head * TILE + n)
                        sums = multiply_add(change, leaky_slope(slope, value), sums)
                        to_a = multiply_add(change, leaky(slope, value), to_a)
                    a = load_first(attention, f, 1, lanes)
                    before = load_first(grad_dst, at * width + f, 1, lanes)
                    store_first(grad_dst, at * width + f, fused(a, sums, before), lanes)
                    store_first(grad_attention, partial + f, to_a, lanes)
            first += count


def _backward_sources(
    indptr: Any,
    indices: Any,
    positions: Any,
    x: Any,
    x_stride: Any,
    x_dst: Any,
    dst_stride: Any,
    attention: Any,
    grad: Any,
    grad_stride: Any,
    grad_x: Any,
    edge_weights: Any,
    edge_grads: Any,
    heads: Any,
    width: Any,
    slope: Any,
    first_row: Any,
    last_row: Any,
) -> None:
    """For sources `first_row` … `last_row`, rows of the transposed matrix."""
    unit = 64 // x.itemsize
    for row in range(first_row, last_row):
        first, stop = item(indptr, row), item(indptr, row + 1)
        for head in range(heads):
            begin = head * width
            for f in range(begin, begin + width, unit):
                lanes = min(unit, begin + width - f)
                own = load_first(x, row * x_stride + f, 1, lanes)
                by_weight, by_score = zeros(x, 1), zeros(x, 1)
                for entry in range(first, stop):
                    destination = item(indices, entry)
                    edge = item(positions, entry) * heads + head
                    g = load_first(grad, destination * grad_stride + f, 1, lanes)
                    by_weight = multiply_add(item(edge_weights, edge), g, by_weight)
                    other = load_first(x_dst, destination * dst_stride + f, 1, lanes)
                    steep = leaky_slope(slope, add(own, other))
                    by_score = multiply_add(item(edge_grads, edge), steep, by_score)
                a = load_first(attention, f, 1, lanes)
                place = row * heads * width + f
                store_first(grad_x, place, fused(a, by_score, by_weight), lanes)


def _signatures(dtype: torch.dtype) -> tuple[Any, Any, Any]:
    scalar, n = FLOATS[dtype], types.int64
    floats, ints, longs = scalar[::1], types.int32[::1], types.int64[::1]
    matrix, shape = (floats, n), (n, n, scalar)
    dropout = (longs, n, longs, n, types.uint64, n, scalar)
    inputs = (*matrix, *matrix, floats)
    forward = types.void(
        *(longs, ints, *inputs, floats, floats, floats, *shape, *dropout),
        *(types.boolean, n, n),
    )
    by_destination = types.void(
        *(longs, ints, *inputs, floats, floats, *matrix, floats, floats, floats, floats),
        *(*shape, *dropout, n, n),
    )
    by_source = types.void(
        *(longs, ints, longs, *inputs, *matrix, floats, floats, floats, *shape, n, n)
    )
    return forward, by_destination, by_source


FORWARD = Kernel(_forward, {dtype: _signatures(dtype)[0] for dtype in FLOATS})
DESTINATIONS = Kernel(_backward_destinations, {dtype: _signatures(dtype)[1] for dtype in FLOATS})
SOURCES = Kernel(_backward_sources, {dtype: _signatures(dtype)[2] for dtype in FLOATS})


@ranged(SPARSE)
def gatv2_forward(
    csr: CSR,
    x: Tensor,
    x_dst: Tensor,
    attention: Tensor,
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
    x, x_dst:
        [cols, heads, D] of sources, also what is summed, and [rows, heads, D] of destinations.
    attention:
        [heads, D], a.
    slope, dropout, state, out, returns:
        as `gnndist.kernels.gat.gat_forward`.
    """
    rows, heads, width = _check(csr, x, x_dst, attention)
    arguments = dropout_arguments(dropout, csr)
    fresh = state is None
    state = empty_state(rows, x, out) if state is None else state
    check_output(state.highest, (rows, heads), x)
    check_output(state.total, (rows, heads), x)
    check_output(state.out.view(rows, heads * width), (rows, heads * width), x)
    if x.device.type != "cpu" or x.dtype not in FLOATS:
        return gatv2_forward_torch(csr, x, x_dst, attention, slope, dropout, state, fresh)
    indptr, indices, _ = csr.arrays()
    kernel = FORWARD(x.dtype)
    first = (
        *(indptr, indices, *flat(x.flatten(1)), *flat(x_dst.flatten(1)), memory(attention)),
        *(memory(state.highest), memory(state.total), memory(state.out), heads, width, slope),
    )

    def task(first_row: int, last_row: int) -> None:
        kernel(*first, *arguments, not fresh, first_row, last_row)

    run_chunks(task, csr.chunks(2 * heads * (width + 4)))
    return state


@ranged(SPARSE)
def gatv2_backward(
    csr: CSR,
    grad: Tensor,
    x: Tensor,
    x_dst: Tensor,
    attention: Tensor,
    shift: Tensor,
    delta: Tensor,
    *,
    slope: float = 0.2,
    dropout: EdgeDropout | None = None,
    grad_dst: Tensor | None = None,
    grad_x: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of attention for one matrix's x, x_dst and a.

    Call it once for each matrix that was taken in, with the same grad, shift and delta, as
    `gnndist.kernels.gat.gat_backward`; grad_dst [rows, heads, D] of one call may be given to the
    next, to be added to; grad_x [cols, heads, D] is memory to write to.

    Returns
    -------
    grad_x, grad_dst, grad_attention
        [cols, heads, D], [rows, heads, D], [heads, D].
    """
    rows, heads, width = _check(csr, x, x_dst, attention)
    arguments = dropout_arguments(dropout, csr)
    check_matrix(grad.flatten(1), rows, "grad")
    grad_dst = x.new_zeros(rows, heads, width) if grad_dst is None else grad_dst
    check_output(grad_dst.view(rows, heads * width), (rows, heads * width), x)
    grad_x = x.new_empty(x.shape) if grad_x is None else grad_x
    check_output(grad_x.view(csr.num_cols, heads * width), (csr.num_cols, heads * width), x)
    if x.device.type != "cpu" or x.dtype not in FLOATS:
        return gatv2_backward_torch(
            csr, grad, x, x_dst, attention, shift, delta, slope, dropout, grad_dst, grad_x
        )
    indptr, indices, _ = csr.arrays()
    blocks = -(-rows // SUM_ROWS)
    sums = np.zeros((blocks, heads * width), memory(attention).dtype)
    edge_weights, edge_grads = (memory(x.new_empty(csr.nnz, heads)) for _ in range(2))
    inputs = (*flat(x.flatten(1)), *flat(x_dst.flatten(1)), memory(attention))
    gradient = flat(grad.flatten(1))
    by_destination = (
        *(indptr, indices, *inputs, memory(shift), memory(delta), *gradient, memory(grad_dst)),
        *(sums.reshape(-1), edge_weights, edge_grads, heads, width, slope, *arguments),
    )
    destinations, sources = DESTINATIONS(x.dtype), SOURCES(x.dtype)

    def task(first: int, last: int) -> None:
        destinations(*by_destination, first * SUM_ROWS, min(last * SUM_ROWS, rows))

    run_chunks(task, even_chunks(blocks, max(blocks, 1)))
    transposed, positions = csr.transpose_positions()
    indptr, indices, _ = transposed.arrays()
    by_source = (
        *(indptr, indices, positions.numpy(), *inputs, *gradient, memory(grad_x)),
        *(edge_weights, edge_grads, heads, width, slope),
    )
    bounds = transposed.chunks(3 * heads * width)
    run_chunks(lambda first, last: sources(*by_source, first, last), bounds)
    grad_attention = torch.from_numpy(sums.sum(axis=0)).view(heads, width)
    return grad_x, grad_dst, grad_attention


def _check(csr: CSR, x: Tensor, x_dst: Tensor, attention: Tensor) -> tuple[int, int, int]:
    if x.dim() != 3 or x.shape[0] != csr.num_cols or not x.dtype.is_floating_point:
        raise ValueError(
            f"x is {x.dtype} {tuple(x.shape)}; floating-point [{csr.num_cols}, heads, D] is needed"
        )
    heads, width = x.shape[1:]
    for name, other, shape in (
        ("x_dst", x_dst, (csr.num_rows, heads, width)),
        ("attention", attention, (heads, width)),
    ):
        if other.shape != shape or other.dtype != x.dtype:
            raise ValueError(
                f"{name} is {other.dtype} {tuple(other.shape)}; {x.dtype} {shape} is needed"
            )
    return csr.num_rows, heads, width
