"""The compiled loops of `gnndist.kernels.gatv2`: a row or a source at a time, over its edges."""

from typing import Any

import numpy as np
import torch
from numba import types

from gnndist.kernels.arithmetic import (
    add,
    fused,
    leaky,
    leaky_slope,
    multiply,
    multiply_add,
    sum_lanes,
)
from gnndist.kernels.compiling import Kernel
from gnndist.kernels.dense import FLOATS
from gnndist.kernels.hashing import hash_id
from gnndist.kernels.tiles import (
    TILE,
    drop_edges,
    exponentials,
    identify,
    soften,
    weighted_sums,
)
from gnndist.kernels.vector import item, load_first, prefetch, store_first, zeros

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
