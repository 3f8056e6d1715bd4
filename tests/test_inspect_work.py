"""What a vertex costs in edges: fitted from rates, before there is a store and from one."""

from typing import Any

import numpy as np
import pytest
import torch
from fixed_rates import BYTE_S, FLOP_S, FixedRates, step_of
from graphs import awkward, two_islands

from gnndist.graph import Graph
from gnndist.inspection import ball as module
from gnndist.inspection.balance import WorkFit, fit_work
from gnndist.inspection.ball import ball, piece_of_graph
from gnndist.inspection.costs import WorkCosts
from gnndist.inspection.measured_work import _one_rank, measure_work
from gnndist.inspection.operations import Gather, Operation, Product, Size, Stream
from gnndist.inspection.rates import Sizes
from gnndist.partitioning import METHODS
from gnndist.training.config import TrainConfig

VERTICES, EDGES = 100, 700


class EvenLocality:
    """A nanosecond an entry and feature, nothing a row."""

    def entry(self, width: int, table_rows: Sizes) -> Sizes:
        return 1e-9 * width * np.ones_like(table_rows)

    def row(self, width: int) -> float:
        return 0.0


def fitted(*operations: Operation) -> WorkFit:
    """Of a step of one layer on a rank alone."""
    trace = step_of(operations)
    locality: Any = EvenLocality()
    costs = WorkCosts(rates=FixedRates(), locality=locality, dtype=torch.float32)
    return fit_work(trace, costs, _one_rank(VERTICES, EDGES, 1))


def gather(entries: str) -> Gather:
    kind: Any = entries
    table = Size("vertices", 0)
    return Gather(
        entries=Size(kind, 0),
        width=8,
        heads=1,
        itemsize=4,
        table=table,
        rows=table,
        kernel="spmm._rows",
    )


def test_products_and_streams_are_the_vertices_and_gathers_the_edges() -> None:
    rows = Size("vertices", 0)
    product = Product(rows=rows, flops=50.0, k=5, n=5, inner=False)
    stream = Stream(traffic={rows: 30.0, None: 1e9}, fused=True)
    fit = fitted(product, stream, gather("local"))
    assert fit.vertex_s == pytest.approx(50 * FLOP_S + 30 * BYTE_S)
    assert fit.edge_s == pytest.approx(8e-9)


def test_self_loops_are_the_vertices() -> None:
    fit = fitted(gather("looped"))
    assert fit.vertex_s == pytest.approx(fit.edge_s) == pytest.approx(8e-9)
    assert fit.vertex_work == 1


def test_the_weight_is_a_whole_number_from_1() -> None:
    assert WorkFit(vertex_s=8.6, edge_s=1.0).vertex_work == 9
    assert WorkFit(vertex_s=0.1, edge_s=1.0).vertex_work == 1
    assert WorkFit(vertex_s=1.0, edge_s=0.0).vertex_work == 1


class Watched:
    """An array that counts what is read of it."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.read = 0

    def __getitem__(self, at: Any) -> Any:
        found = self.array[at]
        self.read += np.size(found)
        return found


def test_a_ball_reads_its_own_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 50)
    ring = np.arange(5000)
    graph = Graph.from_edge_index(np.stack([ring, np.roll(ring, 1)]), symmetrize=True)
    indices: Any = Watched(graph.indices)
    piece = piece_of_graph(graph.with_(indices=indices), method="natural")
    assert piece.rows == 50
    assert piece.matrix.nnz == 98  # a stretch of the ring
    assert indices.read == 2 * 50 * 2


def test_a_ball_goes_on_in_another_component(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ball(two_islands()).tolist() == list(range(24))
    graph = awkward()
    assert len(ball(graph)) == graph.num_vertices  # some of them isolated
    monkeypatch.setattr(module, "ROWS", 7)
    assert len(ball(graph)) == 7


def test_a_ball_has_few_edges_and_no_vertex_with_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    spokes = np.arange(1, 100)
    star = Graph.from_edge_index(np.stack([spokes, 0 * spokes]), symmetrize=True)
    monkeypatch.setattr(module, "MOST_EDGES", 20)
    found = ball(star)
    assert 0 not in found
    assert len(found) == 20


def test_a_graph_without_edges_has_a_weight() -> None:
    graph = Graph(indptr=np.zeros(31, np.int64), indices=np.empty(0, np.int32))
    assert len(ball(graph)) == 30
    assert measure_work(graph, TrainConfig(hidden=8), FixedRates()).vertex_work >= 1


def test_a_graph_of_one_class_has_a_weight() -> None:
    labels = np.zeros(30, np.int64)
    edge_index = np.arange(30).reshape(2, 15)
    graph = Graph.from_edge_index(edge_index, num_vertices=30, labels=labels, num_classes=1)
    assert measure_work(graph, TrainConfig(hidden=8), FixedRates()).vertex_work >= 1


@pytest.mark.parametrize("method", [m for m in METHODS if m != "kaminpar"])
def test_the_piece_is_ordered_as_the_graph_will_be(method: str) -> None:
    graph = awkward(vertices=60)
    piece = piece_of_graph(graph, method=method, seed=3)
    assert (piece.rows, piece.matrix.nnz) == (60, graph.num_edges)
    assert piece_of_graph(graph, method=method, seed=3).key == piece.key


def test_the_piece_is_ordered_by_your_own_cells() -> None:
    graph = two_islands()
    own = np.arange(24) % 2
    piece = piece_of_graph(graph, assignment=own)
    order = np.argsort(own, kind="stable")
    dense = np.zeros((24, 24), bool)
    dense[np.repeat(np.arange(24), np.diff(graph.indptr)), graph.indices] = True
    row = np.repeat(np.arange(24), np.diff(piece.matrix.indptr.numpy()))
    found = np.zeros((24, 24), bool)
    found[row, piece.matrix.indices.numpy()] = True
    assert np.array_equal(found, dense[order][:, order])


def test_wide_models_and_wide_features_make_a_vertex_dear() -> None:
    graph = awkward(vertices=120)

    def work(given: Graph, hidden: int) -> float:
        return measure_work(given, TrainConfig(hidden=hidden), FixedRates()).vertex_s

    assert work(graph, 512) > 4 * work(graph, 16)
    wide = graph.with_(features=np.ones((120, 700), np.float32))
    assert work(wide, 16) > 4 * work(graph, 16)
