"""One place that says whether a graph can be trained on, and if not, which row is why."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from gnndist.errors import DataError
from gnndist.graph import SPLITS, Array, Graph

CHUNK = 1 << 26
"""bytes looked at a time, so that mapped arrays need not fit in memory"""


def validate(graph: Graph, source: str) -> Graph:
    """`graph`, if everything in it fits together.

    A graph without labels may have no splits (it can be partitioned, not trained on); with
    labels it must have at least one training vertex, and every vertex of a split a label.

    Raises
    ------
    DataError
        naming `source`, the value, its row and what is allowed.
    """
    if graph.num_vertices <= 0:
        raise DataError(f"{source}: the graph is empty: it has no vertex")
    _check_adjacency(graph, source)
    if graph.features is not None:
        _check_features(graph, graph.features, source)
    if graph.labels is not None:
        _check_labels(graph, graph.labels, source)
    _check_splits(graph, source)
    return graph


def _row_chunks(rows: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    step = max(1, CHUNK // max(1, row_bytes))
    for start in range(0, rows, step):
        yield start, min(rows, start + step)


def _check_adjacency(graph: Graph, source: str) -> None:
    n, indptr, indices = graph.num_vertices, graph.indptr, graph.indices
    if indptr[0] != 0 or indptr[-1] != len(indices) or bool((np.diff(indptr) < 0).any()):
        raise DataError(f"{source}: indptr must rise from 0 to {len(indices)}, the edge count")
    for a, b in _row_chunks(len(indices), indices.dtype.itemsize):
        part = np.asarray(indices[a:b])
        wrong = (part < 0) | (part >= n)
        if wrong.any():
            at = a + int(np.argmax(wrong))
            row = int(np.searchsorted(indptr, at, side="right")) - 1
            raise DataError(
                f"{source}: an edge joins vertex {int(indices[at])} to {row}: "
                f"allowed are ids 0 to {n - 1}"
            )
        # Ascending within a row, so no edge twice; where a row starts the id may fall.
        falls = a + 1 + np.flatnonzero(np.diff(part) <= 0)
        if a:
            falls = np.concatenate([[a], falls]) if indices[a] <= indices[a - 1] else falls
        inside = falls[indptr[np.searchsorted(indptr, falls)] != falls]
        if len(inside):
            row = int(np.searchsorted(indptr, inside[0], side="right")) - 1
            raise DataError(
                f"{source}: the in-neighbours of vertex {row} are not ascending, or not once each"
            )
    weight = graph.edge_weight
    if weight is None:
        return
    if weight.shape != indices.shape:
        raise DataError(
            f"{source}: {len(indices)} edges have weights of shape {weight.shape}: "
            f"allowed is ({len(indices)},)"
        )
    for a, b in _row_chunks(len(weight), 4):
        finite = np.isfinite(weight[a:b])
        if not finite.all():
            at = a + int(np.argmin(finite))
            raise DataError(f"{source}: edge {at} has weight {weight[at]}: allowed is finite")


def _check_features(graph: Graph, features: Array, source: str) -> None:
    n = graph.num_vertices
    if features.ndim != 2 or len(features) != n:
        raise DataError(
            f"{source}: features have shape {features.shape}: allowed is ({n}, F), a row a vertex"
        )
    kinds = ("uint16",) if graph.bfloat16 else ("float16", "float32", "float64")
    if features.dtype.name not in kinds:
        raise DataError(
            f"{source}: features have dtype {features.dtype}: allowed are {', '.join(kinds)}"
        )
    if features.shape[1] == 0:
        raise DataError(f"{source}: features have shape {features.shape}: no column")
    for a, b in _row_chunks(n, features.dtype.itemsize * features.shape[1]):
        part = np.asarray(features[a:b])
        if features.dtype.itemsize == 2:
            # All exponent bits set: infinite or not a number (numpy's own check is slow here).
            exponent = 0x7F80 if graph.bfloat16 else 0x7C00
            finite = (part.view(np.uint16) & exponent) != exponent
        else:
            finite = np.isfinite(part)
        if not finite.all():
            row, column = (int(i) for i in np.argwhere(~finite)[0])
            value = "not finite" if graph.bfloat16 else part[row, column]
            raise DataError(
                f"{source}: feature {column} of vertex {a + row} is {value}: "
                "allowed are finite numbers"
            )


def _check_labels(graph: Graph, labels: Array, source: str) -> None:
    n, classes = graph.num_vertices, graph.num_classes
    single = graph.task == "single-label"
    shape = (n,) if single else (n, classes)
    if labels.shape != shape:
        raise DataError(
            f"{source}: {graph.task} labels have shape {labels.shape}: allowed is {shape}"
        )
    if single:
        if labels.dtype.kind not in "iu":
            raise DataError(f"{source}: labels have dtype {labels.dtype}: allowed are integers")
        wrong: Any = (labels < -1) | (labels >= classes)
    elif graph.task == "multi-label":
        wrong = ~(np.isnan(labels) | (labels == 0) | (labels == 1)).all(axis=1)
    else:
        wrong = np.isinf(labels).any(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        allowed = {
            "single-label": f"−1 (unlabelled) and 0 to {classes - 1}",
            "multi-label": "0, 1 and NaN (unlabelled)",
            "regression": "finite numbers and NaN (unlabelled)",
        }[graph.task]
        raise DataError(
            f"{source}: the label of vertex {row} is {labels[row].tolist()}: allowed are {allowed}"
        )


def _check_splits(graph: Graph, source: str) -> None:
    n = graph.num_vertices
    owner = np.zeros(n, np.uint8)  # 0: in no split yet, else one more than its place in SPLITS
    for name, ids in graph.splits.items():
        if name not in SPLITS:
            raise DataError(f"{source}: split {name!r}: allowed are {', '.join(SPLITS)}")
        ids = np.asarray(ids)
        if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
            raise DataError(
                f"{source}: split {name!r} is {ids.dtype} of shape {ids.shape}: "
                "allowed is a list of vertex ids"
            )
        _check_split(graph, name, ids, owner, source)
    if graph.labels is not None and not len(graph.splits.get("train", ())):
        raise DataError(f"{source}: there is no training vertex: the 'train' split is empty")


def _check_split(graph: Graph, name: str, ids: Array, owner: Array, source: str) -> None:
    n = graph.num_vertices
    missing = (ids < 0) | (ids >= n)
    if missing.any():
        row = int(np.argmax(missing))
        raise DataError(
            f"{source}: split {name!r}, row {row}, names vertex {ids[row]}, which does not exist: "
            f"allowed are 0 to {n - 1}"
        )
    ids = ids.astype(np.int64)
    taken = owner[ids] > 0
    if taken.any():
        row = int(np.argmax(taken))
        other = SPLITS[owner[ids[row]] - 1]
        raise DataError(
            f"{source}: vertex {ids[row]} is in split {name!r} (row {row}) and in {other!r}: "
            "splits must not overlap"
        )
    owner[ids] = 1 + SPLITS.index(name)
    if int((owner == owner.dtype.type(1 + SPLITS.index(name))).sum()) != len(ids):
        values, times = np.unique(ids, return_counts=True)
        raise DataError(
            f"{source}: split {name!r} names vertex {values[np.argmax(times > 1)]} more than once"
        )
    if graph.labels is None:
        return
    labels = graph.labels[ids]
    bare = labels < 0 if graph.task == "single-label" else np.isnan(labels).all(axis=1)
    if bare.any():
        row = int(np.argmax(bare))
        raise DataError(
            f"{source}: split {name!r}, row {row}, names vertex {ids[row]}, which has no label: "
            "leave it out (predictions cover every vertex in any case)"
        )
