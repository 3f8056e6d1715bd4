"""Whether a graph keeps its promises, before anything is built on it.

One pass in chunks, so that memory-mapped arrays are never in memory whole.
"""

from collections.abc import Iterator

import numpy as np

from gnndist.errors import DataError
from gnndist.graph import SPLITS, Array, Graph

CHUNK_BYTES = 1 << 26


def check_graph(graph: Graph) -> None:
    """Raise a DataError that names the first vertex or edge at fault."""
    if graph.num_vertices < 1:
        raise DataError(f"graph {graph.name!r} has no vertices: allowed is 1 or more")
    _check_rows(graph)
    _check_edges(graph)
    if graph.features is not None:
        _check_features(graph.features, graph.bfloat16)
    if graph.labels is not None:
        _check_labels(graph, graph.labels)
    _check_splits(graph)


def _check_rows(graph: Graph) -> None:
    """Shapes and dtypes of everything there is one of for each vertex."""
    n = graph.num_vertices
    for name in ("features", "labels", "vertex_names"):
        array = getattr(graph, name)
        if array is not None and len(array) != n:
            raise DataError(f"{name} has {len(array)} rows: the graph has {n} vertices")
    if graph.features is not None:
        _check_shape("features", graph.features, 2, "fiub")
        if graph.bfloat16 and graph.features.dtype != np.uint16:
            raise DataError(f"bfloat16 features come as uint16, not {graph.features.dtype}")
    if graph.vertex_names is not None:
        _check_shape("vertex_names", graph.vertex_names, 1, "USiuO")


def _check_shape(name: str, array: Array, dimensions: int, kinds: str) -> None:
    if array.ndim != dimensions:
        raise DataError(f"{name} has shape {array.shape}: allowed are {dimensions} dimensions")
    if array.dtype.kind not in kinds:
        raise DataError(f"{name} has dtype {array.dtype}: allowed are kinds {', '.join(kinds)}")


def _check_edges(graph: Graph) -> None:
    """Rows add up; ids exist, ascend within a row, occur once; weights are finite."""
    n, indptr, indices, weight = (
        graph.num_vertices,
        np.asarray(graph.indptr),
        graph.indices,
        graph.edge_weight,
    )
    if indptr[0] != 0 or (np.diff(indptr) < 0).any() or indptr[-1] != len(indices):
        raise DataError(
            f"indptr runs from {indptr[0]} to {indptr[-1]}: allowed is ascending from 0 to "
            f"{len(indices)}, the number of indices"
        )
    if weight is not None and weight.shape != (len(indices),):
        raise DataError(f"edge_weight has shape {weight.shape}: allowed is ({len(indices)},)")
    for start, stop in chunks(len(indices), 8):
        part = np.asarray(indices[start:stop])
        outside = (part < 0) | (part >= n)
        if outside.any():
            at = start + int(outside.argmax())
            row = int(np.searchsorted(indptr, at, side="right")) - 1
            raise DataError(
                f"an edge joins vertex {int(indices[at])} to {row}: allowed are ids 0 to {n - 1}"
            )
        before = max(start - 1, 0)  # compare across the seam between chunks too
        falls = before + 1 + np.flatnonzero(np.diff(np.asarray(indices[before:stop])) <= 0)
        rows = np.searchsorted(indptr, falls, side="right") - 1
        inside = falls != indptr[rows]
        if inside.any():
            raise DataError(
                f"row {int(rows[inside.argmax()])} of the adjacency is not in ascending order "
                "or holds an edge twice: build the graph with Graph.from_edge_index"
            )
        if weight is not None and not np.isfinite(weight[start:stop]).all():
            at = start + int((~np.isfinite(weight[start:stop])).argmax())
            raise DataError(f"edge {at} has weight {weight[at]}: allowed are finite numbers")


def _check_features(features: Array, bfloat16: bool) -> None:
    if features.dtype.kind != "f" and not bfloat16:
        return
    for start, stop in chunks(len(features), features.shape[1] * features.dtype.itemsize):
        part = np.asarray(features[start:stop])
        if bfloat16:
            finite = (part & 0x7F80) != 0x7F80
        else:
            with np.errstate(over="ignore"):  # float64 beyond float32, which is what is stored
                finite = np.isfinite(part.astype(np.float32) if part.itemsize > 4 else part)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise DataError(
                f"feature {column} of vertex {start + row} is {part[row, column]}: "
                "allowed are finite numbers within float32"
            )


def _check_labels(graph: Graph, labels: Array) -> None:
    classes = graph.num_classes
    if graph.task == "single-label":
        _check_shape("labels", labels, 1, "iu")
        for start, stop in chunks(len(labels), 8):
            part = np.asarray(labels[start:stop])
            wrong = (part < -1) | (part >= classes)
            if wrong.any():
                at = int(wrong.argmax())
                raise DataError(
                    f"vertex {start + at} has label {int(part[at])}: allowed are 0 to "
                    f"{classes - 1}, and -1 for none"
                )
        return
    _check_shape("labels", labels, 2, "fiub")
    if labels.shape[1] != classes:
        raise DataError(f"labels have {labels.shape[1]} columns: num_classes is {classes}")
    for start, stop in chunks(len(labels), 8 * classes):
        part = np.asarray(labels[start:stop], np.float32)
        if graph.task == "multi-label":
            wrong, allowed = ~(np.isnan(part) | (part == 0) | (part == 1)), "0, 1 and NaN for none"
        else:
            wrong, allowed = np.isinf(part), "finite numbers, and NaN for none"
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise DataError(
                f"label {column} of vertex {start + row} is {part[row, column]}: "
                f"allowed are {allowed}"
            )


def _check_splits(graph: Graph) -> None:
    taken = np.zeros(graph.num_vertices, np.uint8)
    for name, ids in graph.splits.items():
        if name not in SPLITS:
            raise DataError(f"split {name!r}: allowed are {', '.join(SPLITS)}")
        ids = np.asarray(ids)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise DataError(
                f"split {name!r} has shape {ids.shape} and dtype {ids.dtype}: "
                "allowed are integers in one dimension"
            )
        outside = (ids < 0) | (ids >= graph.num_vertices)
        if outside.any():
            raise DataError(
                f"split {name!r} names vertex {ids[outside.argmax()]}: "
                f"allowed are ids 0 to {graph.num_vertices - 1}"
            )
        code = SPLITS.index(name) + 1
        clash = taken[ids] > 0
        if clash.any():
            at = int(ids[clash.argmax()])
            other = SPLITS[taken[at] - 1]
            raise DataError(f"vertex {at} is in the splits {other!r} and {name!r}: allowed is one")
        taken[ids] = code
        if np.count_nonzero(taken == code) != len(ids):
            values, counts = np.unique(ids, return_counts=True)
            raise DataError(f"split {name!r} names vertex {values[counts.argmax()]} twice")
        if graph.task == "single-label" and graph.labels is not None:
            missing = np.asarray(graph.labels[ids]) < 0
            if missing.any():
                at = int(ids[missing.argmax()])
                raise DataError(f"vertex {at} is in the split {name!r} but has no label")


def chunks(rows: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of chunks of rows of about `CHUNK_BYTES`."""
    step = max(1, CHUNK_BYTES // max(row_bytes, 1))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)
