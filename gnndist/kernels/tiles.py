"""Steps on one tile of neighbours that the attention kernels share, for use inside numba."""

from typing import Any

import numpy as np
from numba import njit

from gnndist.kernels.arithmetic import (
    add,
    exponential,
    greater,
    lower_by,
    max_lanes,
    multiply_add,
    scale_by,
    sum_lanes,
)
from gnndist.kernels.hashing import hash_id, hash_word
from gnndist.kernels.vector import fill, item, load, load_first, opaque, store, store_first, zeros

TILE = 64
"""Neighbours whose weights are held at a time: head h's at [h * TILE : h * TILE + count]."""


@njit  # type: ignore[untyped-decorator]
def exponentials(weights: Any, begin: Any, count: Any) -> None:
    """Replace weights[begin : begin + count], all 0 or less, by their exponentials."""
    unit = 64 // weights.itemsize
    for start in range(begin, begin + count, unit):
        lanes = min(unit, begin + count - start)
        store_first(weights, start, exponential(load_first(weights, start, 1, lanes)), lanes)


@njit  # type: ignore[untyped-decorator]
def identify(ids: Any, start: Any, place: Any) -> Any:
    """A global id from the ids, or from the start of a run where there are none."""
    return start + place if len(ids) == 0 else ids[place]


@njit  # type: ignore[untyped-decorator]
def keep(factors: Any, n: Any, words: Any, heads: Any, least: Any, scale: Any) -> None:
    """Neighbour n's factor for each head: scale where the edge of these words is kept, else 0."""
    for head in range(heads):
        kept = hash_word(words, head) >= np.uint32(least)
        factors[head * TILE + n] = scale if kept else 0.0


@njit  # type: ignore[untyped-decorator]
def soften(
    weights: Any, count: Any, heads: Any, highest: Any, total: Any, place: Any, factors: Any
) -> None:
    """Turn a tile's scores into exponentials and take them into a row's running softmax.

    highest and total [place : place + heads] are brought up to date; factors [heads]: what the
    row's earlier sums must be multiplied by.
    """
    unit = 64 // weights.itemsize
    for head in range(heads):
        begin = head * TILE
        stop = begin + (count + unit - 1) // unit * unit
        for n in range(begin + count, stop):
            weights[n] = -np.inf  # what fills the last vector counts for nothing
        before = highest[place + head]
        tops = fill(weights, 1, before)
        for start in range(begin, stop, unit):
            tops = greater(load(weights, start, 1), tops)
        top = max_lanes(tops)
        highest[place + head] = top
        base = top if top != -np.inf else 0.0  # -inf - -inf is not a number
        sums = zeros(weights, 1)
        for start in range(begin, stop, unit):
            part = exponential(lower_by(base, load(weights, start, 1)))
            sums = add(sums, part)
            store(weights, start, part)
        factor = 1.0
        if top != before:
            factor = np.exp(before - top) if before != -np.inf else 0.0
        factors[head] = factor
        total[place + head] = total[place + head] * factors[head] + sum_lanes(sums)


@njit  # type: ignore[untyped-decorator]
def weighted_sums(
    indices: Any,
    first: Any,
    count: Any,
    weights: Any,
    x: Any,
    stride: Any,
    out: Any,
    place: Any,
    factors: Any,
    fresh: Any,
    heads: Any,
    width: Any,
) -> None:
    """out[place : place + heads · width] = factor · itself + Σ_n weight_n x_n, head by head."""
    unit = 64 // x.itemsize
    for head in range(heads):
        begin = head * width
        f = 0
        while f + 4 * unit <= width:
            sums = zeros(x, 4)
            if not fresh:
                sums = scale_by(factors[head], load(out, place + begin + f, 4))
            n = 0
            while n < count:
                source = item(indices, first + n) * stride + begin + f
                sums = multiply_add(item(weights, head * TILE + n), load(x, source, 4), sums)
                n = opaque(n + 1)
            store(out, place + begin + f, sums)
            f += 4 * unit
        while f < width:
            lanes = min(unit, width - f)
            part = zeros(x, 1)
            if not fresh:
                part = scale_by(factors[head], load_first(out, place + begin + f, 1, lanes))
            n = 0
            while n < count:
                source = item(indices, first + n) * stride + begin + f
                value = load_first(x, source, 1, lanes)
                part = multiply_add(item(weights, head * TILE + n), value, part)
                n = opaque(n + 1)
            store_first(out, place + begin + f, part, lanes)
            f += unit


@njit  # type: ignore[untyped-decorator]
def drop_edges(
    factors: Any,
    indices: Any,
    first: Any,
    count: Any,
    heads: Any,
    row_words: Any,
    ids: Any,
    start: Any,
    least: Any,
    scale: Any,
) -> None:
    """factors of a destination's edges from the sources at indices[first:]."""
    for n in range(count):
        words = hash_id(row_words, identify(ids, start, item(indices, first + n)))
        keep(factors, n, words, heads, least, scale)
