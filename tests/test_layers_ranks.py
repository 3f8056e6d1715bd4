"""Every layer on any number of ranks gives what it gives on one: training mode, dropout on."""

from typing import Any

import numpy as np
import pytest
import torch
from layers import (
    CASES,
    GRAPHS,
    Case,
    assert_same,
    empty_in_the_middle,
    even_runs,
    gathered,
    made,
    one_rank,
)
from processes import run_ranks
from threads import run_threads
from torch import Tensor

from gnndist import nn
from gnndist.comm import Comm
from gnndist.rankgraph import RankGraph


class Net(torch.nn.Module):
    """Everything that could depend on ranks: dropout, the layer, batch norm, ReLU with dropout."""

    def __init__(self, layer: torch.nn.Module, width: int) -> None:
        super().__init__()
        self.input_dropout = nn.Dropout(0.3)
        self.layer = layer
        if hasattr(layer, "dropout"):
            layer.dropout = 0.4
        self.norm = nn.BatchNorm(width).double()
        # Not 0: a constant column would be 0 to rounding, and ReLU would look at the rounding.
        torch.nn.init.uniform_(self.norm.bias, 0.1, 1.0)
        self.dropout = nn.Dropout(0.5)

    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        h = self.layer(graph, self.input_dropout(graph, x))
        return self.dropout.after_relu(graph.outputs, self.norm(graph.outputs, h))


def net(case: Case) -> Net:
    layer = made(case)
    runs = even_runs(40, 1)
    out = run_threads(one_rank, 1, layer, GRAPHS["symmetric"](), runs, False)[0][1]
    return Net(layer, out.shape[1])


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_any_number_of_ranks(case: Case, graph: str) -> None:
    made_graph, module = GRAPHS[graph](), net(case)
    vertices = made_graph.num_vertices
    one = gathered(run_threads(one_rank, 1, module, made_graph, even_runs(vertices, 1), True))
    for ranks, cut in [
        (2, even_runs),
        (3, empty_in_the_middle),
        (4, even_runs),
        (7, empty_in_the_middle),
    ]:
        parts = run_threads(one_rank, ranks, module, made_graph, cut(vertices, ranks), True)
        assert_same(gathered(parts), one)
    assert one.grads  # the batch norm's at least


@pytest.mark.parametrize("name", ["gcn narrowing", "sage max", "gat heads", "gatv2 heads", "sgc"])
def test_over_gloo(name: str) -> None:
    graph, module = GRAPHS["directed"](), net(CASES[name])
    vertices = graph.num_vertices
    one = gathered(run_threads(one_rank, 1, module, graph, even_runs(vertices, 1), True))
    parts = run_ranks(on_directed, 3, module, empty_in_the_middle(vertices, 3))
    assert_same(gathered(parts), one)


def on_directed(comm: Comm, module: torch.nn.Module, runs: np.ndarray) -> Any:
    return one_rank(comm, module, GRAPHS["directed"](), runs, True)


def test_the_masks_change_with_the_epoch() -> None:
    """What the tests above compare is not a mask of ones."""
    graph, module = GRAPHS["symmetric"](), net(CASES["gat heads"])
    runs = even_runs(graph.num_vertices, 1)
    training = gathered(run_threads(one_rank, 1, module, graph, runs, True))
    evaluation = gathered(run_threads(one_rank, 1, module, graph, runs, False))
    assert not np.allclose(training.out, evaluation.out)
