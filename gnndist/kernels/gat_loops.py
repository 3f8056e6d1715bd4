"""The compiled loops of `gnndist.kernels.gat`: a row or a source at a time, over its edges."""

from typing import Any

import numpy as np
import torch
from numba import types

from gnndist.kernels.arithmetic import multiply, multiply_add, sum_lanes
from gnndist.kernels.compiling import Kernel
from gnndist.kernels.dense import FLOATS
from gnndist.kernels.hashing import hash_id
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
