"""Entry (i, j) of a matrix is an edge from i to j, whichever way the matrix comes in."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from gnndist.data import load
from gnndist.errors import DataError
from gnndist.graph import Graph

N = 7
MATRIX = np.triu(np.random.default_rng(3).integers(0, 4, (N, N)))
"""no edge has its reverse; a row and a column are empty: vertices without an end of one kind"""
MATRIX[2] = MATRIX[:, 4] = 0


def from_scipy(matrix: sp.coo_array, folder: Path) -> Graph:
    return Graph.from_scipy(matrix)


def gnn_benchmark(matrix: sp.coo_array, folder: Path) -> Graph:
    csr = matrix.tocsr()
    parts = {f"adj_{key}": getattr(csr, key) for key in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "m.npz", **parts)
    return load(folder / "m.npz", symmetrize=False)


def scipy_csr(matrix: sp.coo_array, folder: Path) -> Graph:
    sp.save_npz(folder / "m.npz", matrix.tocsr())
    return load(folder / "m.npz", symmetrize=False)


def scipy_coo(matrix: sp.coo_array, folder: Path) -> Graph:
    sp.save_npz(folder / "m.npz", matrix)
    return load(folder / "m.npz", symmetrize=False)


def matrix_market(matrix: sp.coo_array, folder: Path) -> Graph:
    scipy.io.mmwrite(folder / "m.mtx", matrix)
    return load(folder / "m.mtx", symmetrize=False)


WAYS = (from_scipy, gnn_benchmark, scipy_csr, scipy_coo, matrix_market)


def edges(graph: Graph) -> dict[tuple[int, int], float]:
    """Weights by (source, destination)."""
    destination = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    weight = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    pairs = zip(graph.indices.tolist(), destination.tolist(), strict=True)
    return dict(zip(pairs, weight.tolist(), strict=True))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("matrix", [MATRIX, MATRIX > 0], ids=["weighted", "pattern"])
def test_rows_are_sources(
    way: Callable[[sp.coo_array, Path], Graph], matrix: np.ndarray, tmp_path: Path
) -> None:
    graph = way(sp.coo_array(matrix.astype(np.int64)), tmp_path)
    expected = {(int(i), int(j)): float(matrix[i, j]) for i, j in np.argwhere(matrix)}
    assert edges(graph) == expected
    assert (graph.edge_weight is None) == (matrix.dtype == bool)
    assert not graph.symmetric


def test_from_scipy_is_as_pyg_reads_a_matrix() -> None:
    utils = pytest.importorskip("torch_geometric.utils")
    matrix = sp.coo_matrix(MATRIX)
    edge_index, weight = utils.from_scipy_sparse_matrix(matrix)
    theirs = Graph.from_edge_index(edge_index.numpy(), num_vertices=N, edge_weight=weight.numpy())
    assert edges(Graph.from_scipy(matrix)) == edges(theirs)


def test_a_matrix_has_to_be_square() -> None:
    with pytest.raises(DataError, match=r"shape \(2, 3\): allowed is square"):
        Graph.from_scipy(sp.eye_array(2, 3))
