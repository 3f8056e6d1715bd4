"""A store's edges in pieces of bounded size, and which vertices a loss needs."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnndist.plan import NEARLY_ALL
from gnndist.store import Store

CHUNK_EDGES = 1 << 22
"""edges held at a time, about"""


class Chunk(NamedTuple):
    """The edges into vertices start..stop−1."""

    start: int
    stop: int
    row: NDArray[np.int64]
    """[E] global id of each edge's destination, ascending"""
    source: NDArray[Any]
    """[E] global id of its source, ascending within a row"""


def chunks(store: Store, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
    """All edges into vertices start..stop−1, taking edges as evenly spread."""
    stop = store.num_vertices if stop is None else stop
    mean = max(store.num_edges / max(store.num_vertices, 1), 1.0)
    step = max(1, int(CHUNK_EDGES / mean))
    for a in range(start, stop, step):
        b = min(a + step, stop)
        indptr, indices, _ = store.edges(a, b)
        yield Chunk(a, b, np.repeat(np.arange(a, b), np.diff(indptr)), indices)


def training_vertices(store: Store) -> NDArray[np.bool_]:
    """[N] whether a vertex trains."""
    step = 1 << 22
    parts = [
        store.split(a, min(a + step, store.num_vertices)) == 1
        for a in range(0, store.num_vertices, step)
    ]
    return np.concatenate(parts)


def active_rows(store: Store, layers: int) -> list[NDArray[np.bool_]]:
    """The vertices that each layer must compute for the loss on training vertices.

    Returns [N] masks: item k, for k from 0 to `layers`, is what layer k reads (and layer k − 1
    computes); the last is the training vertices. Each holds the one after it. Nearly all are all.
    """
    needed = [_rounded(training_vertices(store))]
    for _ in range(layers):
        rows = needed[0]
        if len(needed) > 1 and np.array_equal(rows, needed[1]):
            needed.insert(0, rows)
            continue
        read = rows.copy()
        for chunk in chunks(store):
            if rows[chunk.start : chunk.stop].any():
                read[chunk.source[rows[chunk.row]]] = True
        needed.insert(0, _rounded(read))
    return needed


def _rounded(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.ones_like(mask) if mask.mean() >= NEARLY_ALL else mask
