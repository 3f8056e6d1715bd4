"""Steps on one tile of neighbours that the attention kernels share, for use inside numba."""

from typing import Any

import numpy as np
from numba import njit

from gnndist.kernels.arithmetic import exponential, multiply_add, scale_by
from gnndist.kernels.hashing import hash_id, hash_word
from gnndist.kernels.vector import item, load, load_first, store, store_first, zeros

TILE = 64
"""Neighbours whose weights are held at a time."""


@njit  # type: ignore[untyped-decorator]
def exponentials(weights: Any, count: Any) -> None:
    """weights[:count] = exp(weights[:count]); all of them 0 or less."""
    unit = 64 // weights.itemsize
    start = 0
    while start + 2 * unit <= count:
        store(weights, start, exponential(load(weights, start, 2)))
        start += 2 * unit
    while start < count:
        lanes = min(unit, count - start)
        store_first(weights, start, exponential(load_first(weights, start, 1, lanes)), lanes)
        start += unit


@njit  # type: ignore[untyped-decorator]
def identify(ids: Any, start: Any, place: Any) -> Any:
    """A global id from the ids, or from the start of a run where there are none."""
    return start + place if len(ids) == 0 else ids[place]


@njit  # type: ignore[untyped-decorator]
def keep(factors: Any, place: Any, words: Any, heads: Any, least: Any, scale: Any) -> None:
    """factors[place : place + heads]: scale where the edge of these words is kept, else 0."""
    for head in range(heads):
        kept = hash_word(words, head) >= np.uint32(least)
        factors[place + head] = scale if kept else 0.0


@njit  # type: ignore[untyped-decorator]
def soften(
    weights: Any, count: Any, heads: Any, highest: Any, total: Any, place: Any, factors: Any
) -> None:
    """Turn a tile's scores into exponentials and take them into a row's running softmax.

    weights [count, heads] scores → exp(score - highest). highest and total [place : place + heads]
    are brought up to date; factors [heads]: what the row's earlier sums must be multiplied by.
    """
    for head in range(heads):
        before = highest[place + head]
        top = before
        for n in range(count):
            top = max(top, weights[n * heads + head])
        highest[place + head] = top
        # exp(-inf - -inf) is not a number: without a score so far there is nothing to rescale
        factors[head] = 1.0 if top == before else np.exp(before - top)
        base = top if top > -np.inf else 0.0
        for n in range(count):
            weights[n * heads + head] -= base
    exponentials(weights, count * heads)
    for head in range(heads):
        part = weights[head]
        for n in range(1, count):
            part += weights[n * heads + head]
        total[place + head] = total[place + head] * factors[head] + part


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
            for n in range(count):
                source = item(indices, first + n) * stride + begin + f
                sums = multiply_add(item(weights, n * heads + head), load(x, source, 4), sums)
            store(out, place + begin + f, sums)
            f += 4 * unit
        while f < width:
            lanes = min(unit, width - f)
            part = zeros(x, 1)
            if not fresh:
                part = scale_by(factors[head], load_first(out, place + begin + f, 1, lanes))
            for n in range(count):
                source = item(indices, first + n) * stride + begin + f
                value = load_first(x, source, 1, lanes)
                part = multiply_add(item(weights, n * heads + head), value, part)
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
    """factors [count, heads] of a destination's edges from the sources at indices[first:]."""
    for n in range(count):
        words = hash_id(row_words, identify(ids, start, item(indices, first + n)))
        keep(factors, n * heads, words, heads, least, scale)
