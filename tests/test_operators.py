"""The sparse matrices of an aggregation: what they hold."""

import numpy as np
import pytest
import torch
from graphs import awkward
from layers import even_runs, rank_graph
from threads import run_threads

from gnndist.comm import Comm
from gnndist.graph import Graph
from gnndist.inspection.held import held_arrays
from gnndist.operators import Aggregation, Norm


@pytest.mark.parametrize(
    ("directed", "norm", "numbers_an_edge"),
    [
        (False, "symmetric", 1 + 1),  # L itself is symmetric
        (False, "mean", 1 + 2),  # its pattern is
        (False, "sum", 1),
        (True, "mean", 2 + 2),
        (True, "sum", 2),
    ],
)
def test_an_undirected_pattern_is_held_once(
    directed: bool, norm: Norm, numbers_an_edge: int
) -> None:
    graph = awkward(directed=directed, vertices=400)

    def held(comm: Comm, graph: Graph) -> tuple[int, int]:
        """Bytes of L and its transpose but for row pointers; L's edges."""
        view = rank_graph(comm, graph, even_runs(graph.num_vertices, comm.world))
        operators = view.operators(Aggregation(norm=norm), torch.float32)
        pointers = 8 * (view.num_rows + 1)
        arrays = list(held_arrays(operators.local, operators.local_t))
        return sum(a.nbytes for a in arrays if a.nbytes != pointers), operators.local.nnz

    for nbytes, edges in run_threads(held, 2, graph):
        assert edges > 100
        assert nbytes == 4 * numbers_an_edge * edges


def test_sharing_a_pattern_changes_no_transpose() -> None:
    graph = awkward(vertices=60)

    def products(comm: Comm) -> list[np.ndarray]:
        view = rank_graph(comm, graph, even_runs(graph.num_vertices, comm.world))
        operators = view.operators(Aggregation(norm="mean"), torch.float64)
        return [_dense(operators.local), _dense(operators.local_t)]

    for forward, backward in run_threads(products, 2):
        assert forward.any()
        assert np.array_equal(forward.T, backward)


def _dense(matrix: object) -> np.ndarray:
    n = matrix.num_rows
    dense = np.zeros((n, matrix.num_cols))
    row = np.repeat(np.arange(n), np.diff(matrix.indptr.numpy()))
    dense[row, matrix.indices.numpy()] = matrix.values.numpy()
    return dense
