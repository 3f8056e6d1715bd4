"""A graph as its user knows it: original ids, one process, plain arrays.

Everything that reads a graph returns a `Graph`; partitioning and the store take one. The
adjacency is CSR by destination: row i holds the in-neighbours of i, in ascending order, once
each. All arrays may be memory-mapped files, so a `Graph` need not fit in memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gnndist.errors import DataError

Task = Literal["single-label", "multi-label", "regression"]
SPLITS = ("train", "valid", "test")
Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class EdgeCounts:
    """What became of the edges on the way in, for the summary."""

    read: int
    """edges in the source"""
    duplicates: int = 0
    """edges merged into an equal one (unweighted: dropped; weighted: weights added)"""
    self_loops: int = 0
    """edges from a vertex to itself, kept, once each"""
    reversed: int = 0
    """edges added by symmetrising: reverses that were not there.
    ``read − duplicates + reversed`` is the graph's number of edges"""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A graph with what there is to learn on it.

    Shapes: N vertices, E edges, F features, C classes (or targets).
    """

    indptr: NDArray[np.int64]
    """[N + 1]: row i's in-neighbours are ``indices[indptr[i]:indptr[i + 1]]``"""
    indices: Array
    """[E] int32 or int64, ascending within a row, no duplicates"""
    edge_weight: Array | None = None
    """[E] float32, aligned with `indices`; None: every edge counts 1"""
    features: Array | None = None
    """[N, F] float32, float16 or float64 (or uint16 holding bfloat16, see `bfloat16`)"""
    bfloat16: bool = False
    """`features` is the bit pattern of bfloat16 numbers in uint16"""
    labels: Array | None = None
    """[N] int64, −1 unlabelled (single-label); [N, C] float32, NaN unlabelled (the others)"""
    task: Task = "single-label"
    num_classes: int = 0
    """classes, label columns or regression targets: the width of a model's output"""
    splits: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """train, valid, test: original ids, disjoint"""
    symmetric: bool = False
    """every edge has its reverse (with the same weight)"""
    name: str = "graph"
    evaluator: str | None = None
    """the OGB data set whose official evaluator judges predictions, e.g. ``ogbn-arxiv``"""
    vertex_names: Array | None = None
    """[N] the user's own ids where they were not 0..N−1 (strings or sparse integers)"""
    edge_counts: EdgeCounts | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "splits", MappingProxyType(dict(self.splits)))
        if self.task not in get_args(Task):
            raise DataError(f"task {self.task!r}: allowed are {', '.join(get_args(Task))}")

    @property
    def num_vertices(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return int(self.indptr[-1])

    @property
    def num_features(self) -> int:
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def weighted(self) -> bool:
        return self.edge_weight is not None

    def entries(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the edges into some vertices lie: (indptr, positions in `indices`)."""
        first = np.asarray(self.indptr[ids])
        length = np.asarray(self.indptr[ids + 1]) - first
        indptr = np.concatenate([[0], np.cumsum(length)])
        return indptr, np.arange(indptr[-1]) + np.repeat(first - indptr[:-1], length)

    def with_(self, **changes: Any) -> "Graph":
        """A copy with some fields replaced."""
        return replace(self, **changes)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Array,
        *,
        num_vertices: int | None = None,
        edge_weight: Array | None = None,
        symmetrize: bool = False,
        **fields: Any,
    ) -> "Graph":
        """A graph from source → destination pairs.

        Parameters
        ----------
        edge_index:
            [2, E] integers: ``edge_index[0]`` are sources, ``edge_index[1]`` destinations.
        num_vertices:
            N; default: rows of `features` or `labels`, else the largest id + 1.
        edge_weight:
            [E] finite numbers.
        symmetrize:
            add the reverse of every edge, unless every edge has it already (with its weight).
            Where both directions have weights, both get the sum.
        **fields:
            the other fields of `Graph`.

        An edge that occurs several times becomes one: unweighted edges are a set, the weights of
        weighted ones are added. Self-loops are kept.

        Raises
        ------
        DataError
            wrong shape or dtype, an id outside 0..N−1, a weight that is not finite.
        """
        edges = np.asarray(edge_index)
        if edges.ndim != 2 or edges.shape[0] != 2:
            raise DataError(f"edge_index has shape {edges.shape}: allowed is (2, edges)")
        if edges.dtype.kind not in "iu":
            raise DataError(f"edge_index has dtype {edges.dtype}: allowed are integers")
        if num_vertices is None:
            known = next(
                (a for k in ("features", "labels") if (a := fields.get(k)) is not None), None
            )
            num_vertices = len(known) if known is not None else int(edges.max(initial=-1)) + 1
        _check_ids(edges, num_vertices)
        read = edges.shape[1]
        weight = None if edge_weight is None else _checked_weight(edge_weight, read)
        source, destination = edges
        indptr, indices, weight, duplicates = _to_csr(source, destination, weight, num_vertices)
        rows = np.repeat(np.arange(num_vertices, dtype=indices.dtype), np.diff(indptr))
        loops = int((rows == indices).sum())
        symmetric = is_symmetric(indptr, indices, weight)
        directed = len(indices)
        if symmetrize and not symmetric:
            off = rows != indices
            source, destination = (
                np.concatenate([indices, rows[off]]),
                np.concatenate([rows, indices[off]]),
            )
            weight = None if weight is None else np.concatenate([weight, weight[off]])
            indptr, indices, weight, _ = _to_csr(source, destination, weight, num_vertices)
            symmetric = True
        counts = EdgeCounts(
            read=read,
            duplicates=duplicates,
            self_loops=loops,
            reversed=len(indices) - directed,
        )
        fields.setdefault("symmetric", symmetric)
        fields.setdefault("edge_counts", counts)
        return cls(indptr=indptr, indices=indices, edge_weight=weight, **fields)

    @classmethod
    def from_scipy(
        cls,
        adjacency: Any,
        features: Array | None = None,
        labels: Array | None = None,
        **fields: Any,
    ) -> "Graph":
        """A graph from a scipy sparse matrix: entry (i, j) is an edge from i to j.

        That is what files of matrices say too, and PyTorch Geometric's
        ``from_scipy_sparse_matrix``: rows are sources, columns destinations. (`Graph` itself, and
        the store, keep rows by destination.) Weights are taken from the matrix unless all of them
        are 1. Other arguments as in `from_edge_index`.

        Raises
        ------
        DataError
            a matrix that is not square; what `from_edge_index` refuses.
        """
        matrix = sp.coo_array(adjacency)
        if matrix.shape[0] != matrix.shape[1]:
            raise DataError(f"adjacency has shape {matrix.shape}: allowed is square")
        weight = None if bool((matrix.data == 1).all()) else matrix.data
        row, col = matrix.coords
        return cls.from_edge_index(
            np.stack([row, col]).astype(np.int64),
            num_vertices=matrix.shape[0],
            edge_weight=weight,
            features=features,
            labels=labels,
            **fields,
        )

    @classmethod
    def from_pyg(cls, data: Any, **options: Any) -> "Graph":
        """A graph from a ``torch_geometric.data.Data``: `gnndist.data.frameworks.from_pyg`."""
        from gnndist.data.frameworks import from_pyg

        return from_pyg(data, **options)

    @classmethod
    def from_dgl(cls, graph: Any, **options: Any) -> "Graph":
        """A graph from a ``dgl.DGLGraph``: `gnndist.data.frameworks.from_dgl`."""
        from gnndist.data.frameworks import from_dgl

        return from_dgl(graph, **options)


def _check_ids(edges: Array, num_vertices: int) -> None:
    if num_vertices < 0:
        raise DataError(f"{num_vertices} vertices: allowed are 0 and more")
    if edges.size and (edges.min() < 0 or edges.max() >= num_vertices):
        outside = (edges < 0) | (edges >= num_vertices)
        at = int(np.flatnonzero(outside.any(axis=0))[0])
        raise DataError(
            f"edge {at} joins vertex {int(edges[0, at])} to {int(edges[1, at])}: "
            f"allowed are ids 0 to {num_vertices - 1}"
        )


def _checked_weight(edge_weight: Array, count: int) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and refused below
        weight = np.asarray(edge_weight, dtype=np.float32)
    if weight.shape != (count,):
        raise DataError(f"edge_weight has shape {weight.shape}: allowed is ({count},)")
    if not np.isfinite(weight).all():
        at = int(np.flatnonzero(~np.isfinite(weight))[0])
        raise DataError(f"edge {at} has weight {weight[at]}: allowed are finite numbers")
    return weight


def _to_csr(
    source: Array, destination: Array, weight: Array | None, num_vertices: int
) -> tuple[NDArray[np.int64], Array, Array | None, int]:
    """Sorted CSR by destination; equal edges merged; how many were merged."""
    ids = np.int32 if num_vertices < 2**31 else np.int64
    data = np.ones(len(source), np.int8) if weight is None else weight
    matrix = sp.csr_array(
        (data, (destination.astype(ids), source.astype(ids))), shape=(num_vertices, num_vertices)
    )
    # scipy merges duplicates while it converts (int8 counts may wrap: only the pattern is used).
    matrix.sum_duplicates()
    merged = len(source) - int(matrix.nnz)
    kept = None if weight is None else matrix.data.astype(np.float32)
    return matrix.indptr.astype(np.int64), matrix.indices.astype(ids), kept, merged


def is_symmetric(indptr: Array, indices: Array, weight: Array | None) -> bool:
    """Whether the sorted CSR matrix equals its transpose."""
    n = len(indptr) - 1
    data = np.ones(len(indices), np.int8) if weight is None else weight
    matrix = sp.csr_array((data, indices, indptr), shape=(n, n))
    transposed = matrix.T.tocsr()
    return (
        np.array_equal(matrix.indptr, transposed.indptr)
        and np.array_equal(matrix.indices, transposed.indices)
        and np.array_equal(matrix.data, transposed.data)
    )
