"""The layouts in which public graphs lie in ``.npz`` archives, told apart by their arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gnndist.data.building import build
from gnndist.data.features import as_features, checked_csr, densify
from gnndist.data.files import must_fit
from gnndist.data.labels import as_labels
from gnndist.data.npz import Archive, whole
from gnndist.errors import ConfigError, DataError
from gnndist.graph import Array, Graph

_SPLIT_KEYS = {
    "train": ("train", "train_idx", "train_mask", "train_masks"),
    "valid": ("valid", "val", "valid_idx", "val_idx", "valid_mask", "val_mask", "val_masks"),
    "test": ("test", "test_idx", "test_mask", "test_masks"),
}


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    symmetrize: bool
    split_index: int
    scratch: Path | None


def read_npz(
    path: Path, *, symmetrize: bool, split_index: int = 0, scratch: Path | None = None
) -> Graph:
    """The graph in a numpy archive of any layout known here.

    - gnn-benchmark (Shchur et al. 2018): ``adj_data, adj_indices, adj_indptr, adj_shape``,
      ``attr_*`` likewise or ``attr_matrix``, ``labels``
    - edge list: ``edge_index`` [2, E], and optionally ``edge_weight, node_feat, node_label,
      num_nodes``, splits as ids or masks in ``train, valid, test``
    - heterophilous graphs (Platonov et al. 2023): ``node_features, node_labels, edges`` [E, 2],
      ``train_masks, val_masks, test_masks`` [10, N]
    - DGL's Reddit: ``reddit_data.npz`` and ``reddit_graph.npz``, named by either
    - ``scipy.sparse.save_npz``: an adjacency in CSR or COO alone

    An entry in row i, column j of an adjacency is an edge from i to j, as in `Graph.from_scipy`.

    Raises
    ------
    DataError
        no known layout; arrays that are missing, malformed or do not fit together.
    ConfigError
        a `split_index` that the file does not have.
    """
    wanted = _Wanted(symmetrize=symmetrize, split_index=split_index, scratch=scratch)
    with Archive(path, scratch) as archive:
        for needed, read in _LAYOUTS:
            if needed <= archive.keys:
                return read(archive, wanted)
        known = "; ".join(", ".join(sorted(needed)) for needed, _ in _LAYOUTS)
        raise DataError(
            f"{path}: holds {', '.join(sorted(archive.keys)) or 'no array'}: "
            f"no layout known here (allowed are archives with {known})"
        )


def _name(archive: Archive) -> str:
    return archive.path.stem


def _graph(archive: Archive, wanted: _Wanted, edges: Array, **fields: Any) -> Graph:
    return build(
        edges,
        archive.path,
        symmetrize=wanted.symmetrize,
        scratch=wanted.scratch,
        name=_name(archive),
        **fields,
    )


def _labels(archive: Archive, key: str) -> dict[str, Any]:
    """The fields of a `Graph` that come of the array `key`."""
    if key not in archive:
        return {}
    labels, task, classes = as_labels(archive.array(key), f"{archive.path}: {key}")
    return {"labels": labels, "task": task, "num_classes": classes}


def _csr(archive: Archive, prefix: str) -> sp.csr_array:
    """The matrix in ``PREFIX_data``, ``_indices``, ``_indptr``, ``_shape``."""
    shape = archive.integers(f"{prefix}shape")
    if len(shape) != 2:
        raise DataError(f"{archive.path}: {prefix}shape is {shape.tolist()}: allowed are two")
    rows, columns = int(shape[0]), int(shape[1])
    return checked_csr(
        archive.numbers(f"{prefix}data", ndim=1),
        archive.integers(f"{prefix}indices"),
        archive.integers(f"{prefix}indptr"),
        (rows, columns),
        f"{archive.path}: {prefix.rstrip('_') or 'matrix'}",
    )


def _square_edges(matrix: sp.csr_array, path: Path) -> tuple[Array, Array | None]:
    """[2, E] row → column, and the weights unless all are 1."""
    if matrix.shape[0] != matrix.shape[1]:
        raise DataError(f"{path}: the adjacency has shape {matrix.shape}: allowed is square")
    coo = matrix.tocoo()
    weight = None if bool((coo.data == 1).all()) else coo.data
    return np.stack([coo.row, coo.col]), weight


def _read_gnn_benchmark(archive: Archive, wanted: _Wanted) -> Graph:
    adjacency = _csr(archive, "adj_")
    edges, weight = _square_edges(adjacency, archive.path)
    features = None
    if "attr_data" in archive:
        matrix = _csr(archive, "attr_")
        must_fit(4 * matrix.shape[0] * matrix.shape[1], archive.path, "attr as a dense matrix")
        features = densify(matrix)
    elif "attr_matrix" in archive:
        features = as_features(archive.array("attr_matrix"), f"{archive.path}: attr_matrix")
    return _graph(
        archive,
        wanted,
        edges,
        num_vertices=adjacency.shape[0],
        edge_weight=weight,
        features=features,
        **_labels(archive, "labels"),
    )


def _read_edge_index(archive: Archive, wanted: _Wanted) -> Graph:
    features = None
    if "node_feat" in archive:
        source = f"{archive.path}: node_feat"
        features = as_features(archive.array("node_feat"), source)
    fields = _labels(archive, "node_label")
    n = None
    if "num_nodes" in archive:
        count = archive.array("num_nodes").reshape(-1)
        if len(count) != 1:
            raise DataError(f"{archive.path}: num_nodes has {len(count)} entries: allowed is one")
        n = int(whole(count, f"{archive.path}: num_nodes", ndim=1)[0])
    weight = archive.numbers("edge_weight", ndim=1) if "edge_weight" in archive else None
    return _graph(
        archive,
        wanted,
        archive.integers("edge_index", ndim=2),
        num_vertices=n,
        edge_weight=weight,
        features=features,
        splits=_splits(archive, wanted.split_index),
        **fields,
    )


def _read_heterophilous(archive: Archive, wanted: _Wanted) -> Graph:
    edges = archive.integers("edges", ndim=2)
    if edges.shape[1] != 2:
        raise DataError(f"{archive.path}: edges has shape {edges.shape}: allowed is (E, 2)")
    return _graph(
        archive,
        wanted,
        edges.T,
        features=as_features(archive.array("node_features"), f"{archive.path}: node_features"),
        splits=_splits(archive, wanted.split_index),
        **_labels(archive, "node_labels"),
    )


def _splits(archive: Archive, split_index: int) -> dict[str, Array]:
    """The splits in an archive, as ids; of several masks the one of number `split_index`."""
    splits = {}
    for name, keys in _SPLIT_KEYS.items():
        key = next((k for k in keys if k in archive), None)
        if key is not None:
            splits[name] = _one_split(archive.array(key), split_index, f"{archive.path}: {key}")
    return splits


def _one_split(array: Array, split_index: int, source: str) -> Array:
    if array.dtype.kind == "b" and array.ndim == 2:
        if not 0 <= split_index < len(array):
            raise ConfigError(
                f"split index {split_index}: {source} has splits 0 to {len(array) - 1}"
            )
        return np.flatnonzero(array[split_index])
    if split_index != 0:
        raise ConfigError(f"split index {split_index}: {source} holds one split, number 0")
    if array.dtype.kind == "b" and array.ndim == 1:
        return np.flatnonzero(array)
    return np.asarray(whole(array, source, ndim=1), np.int64)


def _read_reddit(archive: Archive, wanted: _Wanted) -> Graph:
    """DGL's pair of files: features, labels and splits in one, a COO adjacency in the other."""
    folder = archive.path.parent
    prefix = archive.path.stem.removesuffix("_data").removesuffix("_graph")
    with (
        Archive(folder / f"{prefix}_data.npz", wanted.scratch) as data,
        Archive(folder / f"{prefix}_graph.npz", wanted.scratch) as graph,
    ):
        edges, weight, n = _scipy_edges(graph)
        types = data.integers("node_types")
        return _graph(
            data,
            wanted,
            edges,
            num_vertices=n,
            edge_weight=weight,
            features=as_features(data.array("feature"), f"{data.path}: feature"),
            splits={
                name: np.flatnonzero(types == number)
                for number, name in enumerate(("train", "valid", "test"), start=1)
            },
            **_labels(data, "label"),
        ).with_(name=prefix)


def _scipy_edges(archive: Archive) -> tuple[Array, Array | None, int]:
    """Edges, weights and vertex count of what ``scipy.sparse.save_npz`` wrote."""
    if "row" not in archive:
        matrix = _csr(archive, "")
        edges, weight = _square_edges(matrix, archive.path)
        return edges, weight, matrix.shape[0]
    row, column = archive.integers("row"), archive.integers("col")
    shape = archive.integers("shape").tolist()
    if len(row) != len(column) or len(shape) != 2 or shape[0] != shape[1]:
        raise DataError(
            f"{archive.path}: {len(row)} rows, {len(column)} columns, shape {shape}: "
            "allowed are as many rows as columns, and a square shape"
        )
    data = archive.numbers("data", ndim=1)
    weight = None if bool((data == 1).all()) else data
    return np.stack([row, column]), weight, int(shape[0])


def _read_scipy(archive: Archive, wanted: _Wanted) -> Graph:
    partner = archive.path.name.removesuffix("_graph.npz") + "_data.npz"
    if archive.path.name.endswith("_graph.npz") and archive.path.with_name(partner).exists():
        return _read_reddit(archive, wanted)
    edges, weight, n = _scipy_edges(archive)
    return _graph(archive, wanted, edges, num_vertices=n, edge_weight=weight)


_LAYOUTS: tuple[tuple[frozenset[str], Callable[[Archive, _Wanted], Graph]], ...] = (
    (
        frozenset({"adj_data", "adj_indices", "adj_indptr", "adj_shape"}),
        _read_gnn_benchmark,
    ),
    (frozenset({"edge_index"}), _read_edge_index),
    (frozenset({"edges", "node_features"}), _read_heterophilous),
    (frozenset({"feature", "label", "node_types"}), _read_reddit),
    (frozenset({"row", "col", "data", "shape"}), _read_scipy),
    (frozenset({"indices", "indptr", "data", "shape"}), _read_scipy),
)
