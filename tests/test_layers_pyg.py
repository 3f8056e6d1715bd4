"""Every layer against torch_geometric's own with the same weights, on one process, in float64."""

import numpy as np
import pytest
import torch
from layers import CASES, GRAPHS, Case, Result, assert_same, edge_index, gathered, made, one_rank
from layers import output_gradient as gradient_of
from threads import run_threads

from gnndist.graph import Graph

pyg = pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")


def of_pyg(case: Case, state: dict[str, torch.Tensor], graph: Graph) -> Result:
    """What torch_geometric computes with these weights."""
    layer = case.make_pyg().double()
    layer.load_state_dict(state)
    layer.eval()
    x = torch.from_numpy(np.asarray(graph.features)).double().requires_grad_()
    inputs = [x, edge_index(graph)]
    if case.weighted and graph.edge_weight is not None:
        inputs.append(torch.from_numpy(graph.edge_weight).double())
    out = layer(*inputs)
    out.backward(gradient_of(graph.num_vertices, out.shape[1]))
    grads = {k: p.grad for k, p in layer.named_parameters() if p.grad is not None}
    return Result(out.detach(), x.grad, grads, {})


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_equals_pyg(case: Case, graph: str) -> None:
    made_graph = GRAPHS[graph]()
    layer = made(case)
    runs = np.array([0, made_graph.num_vertices])
    found = gathered(run_threads(one_rank, 1, layer, made_graph, runs, False))
    wanted = of_pyg(case, layer.state_dict(), made_graph)
    found.buffers = {}
    assert_same(found, wanted)
