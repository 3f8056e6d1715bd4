"""Graphs from torch_geometric and DGL, and their layers on a rank's part of a graph."""

from typing import Any

import numpy as np
import pytest
import torch
from graphs import CLASSES, awkward
from layers import (
    IN,
    Result,
    assert_same,
    dgl_or_skip,
    edge_index,
    empty_in_the_middle,
    even_runs,
    gathered,
    one_rank,
    output_gradient,
    rank_graph,
    weighted,
)
from threads import run_threads
from torch import Tensor

from gnndist.comm import Comm
from gnndist.errors import DataError
from gnndist.graph import Graph
from gnndist.rankgraph import RankGraph

DIRECTED = awkward(directed=True)


def masks(graph: Graph) -> dict[str, Tensor]:
    found = {}
    for split, name in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
        found[name] = torch.zeros(graph.num_vertices, dtype=torch.bool)
        found[name][graph.splits[split]] = True
    return found


def pyg_data(graph: Graph, **changes: Any) -> Any:
    pyg = pytest.importorskip("torch_geometric.data", reason="torch_geometric is not installed")
    held: dict[str, Any] = {
        "x": torch.from_numpy(graph.features),
        "edge_index": edge_index(graph),
        "y": torch.from_numpy(graph.labels),
        **masks(graph),
    }
    if graph.edge_weight is not None:
        held["edge_weight"] = torch.from_numpy(graph.edge_weight)
    return pyg.Data(**held | changes)


def assert_equal(found: Graph, wanted: Graph) -> None:
    for name in ("indptr", "indices", "features", "labels"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
    if wanted.edge_weight is None:
        assert found.edge_weight is None
    else:
        np.testing.assert_array_equal(found.edge_weight, wanted.edge_weight)
    assert (found.task, found.num_classes) == (wanted.task, wanted.num_classes)
    assert found.splits.keys() == wanted.splits.keys()
    for split, ids in wanted.splits.items():
        np.testing.assert_array_equal(found.splits[split], ids)


@pytest.mark.parametrize(
    "graph", [awkward(), DIRECTED, weighted(DIRECTED)], ids=["symmetric", "directed", "weighted"]
)
def test_from_pyg_and_dgl(graph: Graph) -> None:
    assert_equal(Graph.from_pyg(pyg_data(graph)), graph)
    dgl = dgl_or_skip()
    other = dgl.graph(tuple(edge_index(graph)), num_nodes=graph.num_vertices)
    other.ndata["feat"] = torch.from_numpy(graph.features)
    other.ndata["label"] = torch.from_numpy(graph.labels)
    for name, mask in masks(graph).items():
        other.ndata[name] = mask
    if graph.edge_weight is not None:
        other.edata["w"] = torch.from_numpy(graph.edge_weight)
    weight = None if graph.edge_weight is None else "w"
    assert_equal(Graph.from_dgl(other, edge_weight=weight), graph)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_from_pyg_takes_other_shapes() -> None:
    """adj_t, masks of several splits, labels in a column, weights in a column, bfloat16."""
    graph = weighted(DIRECTED)
    shape = (graph.num_vertices,) * 2
    source, destination = edge_index(graph)
    weight = torch.from_numpy(graph.edge_weight)
    adjacency = torch.sparse_coo_tensor(torch.stack([destination, source]), weight, shape)
    changes = {name: torch.stack([~m, m], dim=1) for name, m in masks(graph).items()}
    changes |= {"adj_t": adjacency.to_sparse_csr(), "edge_index": None, "edge_weight": None}
    changes["y"] = torch.from_numpy(graph.labels)[:, None]
    assert_equal(Graph.from_pyg(pyg_data(graph, **changes), split_index=1), graph)

    half = torch.from_numpy(graph.features).bfloat16()
    found = Graph.from_pyg(
        pyg_data(graph, x=half, edge_attr=weight[:, None]), edge_weight="edge_attr"
    )
    assert_equal(found, graph.with_(features=half.float().numpy()))


@pytest.mark.parametrize(
    ("labels", "options", "task", "width"),
    [
        (torch.arange(40) % 3, {}, "single-label", 3),
        (torch.arange(80).view(40, 2) % 2, {}, "multi-label", 2),
        (torch.linspace(0, 1, 40), {}, "regression", 1),
        (torch.arange(40) % 3, {"task": "regression"}, "regression", 1),
    ],
)
def test_from_pyg_sees_the_task(
    labels: Tensor, options: dict[str, Any], task: str, width: int
) -> None:
    found = Graph.from_pyg(pyg_data(DIRECTED, y=labels), **options)
    assert (found.task, found.num_classes, len(found.labels)) == (task, width, 40)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"edge_index": None}, {}, "neither edge_index nor adj_t"),
        ({"x": torch.ones(3, 2), "num_nodes": 40}, {}, r"features have shape \(3, 2\)"),
        ({"train_mask": torch.ones(40, 2)}, {"split_index": 2}, "train has 2 splits"),
        ({"val_mask": torch.ones(40, dtype=torch.bool)}, {}, "valid"),
        ({"edge_weight": torch.ones(3)}, {}, r"edge_weight has shape \(3,\)"),
    ],
)
def test_from_pyg_says_what_is_wrong(
    changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Graph.from_pyg(pyg_data(DIRECTED, **changes), **options)


def test_other_objects_are_refused() -> None:
    pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    with pytest.raises(DataError, match="data is dict"):
        Graph.from_pyg({})
    dgl = dgl_or_skip()
    with pytest.raises(DataError, match="graph is dict"):
        Graph.from_dgl({})
    hetero = dgl.heterograph({("a", "to", "b"): ([0], [1])})
    with pytest.raises(DataError, match="vertex types"):
        Graph.from_dgl(hetero)
    with pytest.raises(DataError, match="edge_weight 'w' is not in edata, which has nothing"):
        Graph.from_dgl(dgl.graph(([0], [1])), edge_weight="w")


class OfPyg(torch.nn.Module):
    """A user's model around a torch_geometric layer, on a rank's graph."""

    def __init__(self, conv: torch.nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        part = graph.bipartite(x)
        return self.conv((part.features, part.outputs), part.edge_index)


class Whole(torch.nn.Module):
    """The same layer on the whole graph, in one process and without gnndist."""

    def __init__(self, conv: torch.nn.Module, edges: Tensor) -> None:
        super().__init__()
        self.conv = conv
        self.edges = edges

    def result(self, x: Tensor) -> Result:
        x = x.clone().requires_grad_()
        out = self.conv(x, self.edges)
        out.backward(output_gradient(*out.shape))
        grads = {f"conv.{k}": p.grad for k, p in self.conv.named_parameters()}
        return Result(out.detach(), x.grad, grads, {})


def pyg_convs() -> dict[str, Any]:
    import torch_geometric.nn as pyg

    return {
        "GATConv": lambda: pyg.GATConv(IN, 3, heads=2),
        "SAGEConv": lambda: pyg.SAGEConv(IN, 4),
        "TransformerConv": lambda: pyg.TransformerConv(IN, 3, heads=2),
        "GINConv": lambda: pyg.GINConv(torch.nn.Linear(IN, 4)),
    }


@pytest.mark.parametrize("name", ["GATConv", "SAGEConv", "TransformerConv", "GINConv"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_pyg_layers_run_unchanged(name: str, ranks: int) -> None:
    pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    torch.manual_seed(1)
    conv = pyg_convs()[name]().double()
    runs = empty_in_the_middle(DIRECTED.num_vertices, ranks)
    found = gathered(run_threads(one_rank, ranks, OfPyg(conv), DIRECTED, runs, True))
    x = torch.from_numpy(DIRECTED.features).double()
    assert_same(found, Whole(conv, edge_index(DIRECTED)).result(x))


class OfDgl(torch.nn.Module):
    """A user's model around a DGL layer, on the block of a rank's graph."""

    def __init__(self, conv: torch.nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        import dgl

        part = graph.bipartite(x)
        block = dgl.create_block(
            tuple(part.edge_index),
            num_src_nodes=len(part.features),
            num_dst_nodes=part.num_outputs,
        )
        return self.conv(block, part.features).flatten(1)


@pytest.mark.parametrize("name", ["SAGEConv", "GATConv"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_dgl_layers_run_unchanged_on_the_block(name: str, ranks: int) -> None:
    dgl = dgl_or_skip()
    torch.manual_seed(1)
    arguments = (IN, 4, "mean") if name == "SAGEConv" else (IN, 3, 2)
    options = {} if name == "SAGEConv" else {"allow_zero_in_degree": True}
    conv = getattr(dgl.nn.pytorch, name)(*arguments, **options).double()
    runs = even_runs(DIRECTED.num_vertices, ranks)
    found = gathered(run_threads(one_rank, ranks, OfDgl(conv), DIRECTED, runs, True))
    whole = dgl.graph(tuple(edge_index(DIRECTED)), num_nodes=DIRECTED.num_vertices)
    x = torch.from_numpy(DIRECTED.features).double().requires_grad_()
    out = conv(whole, x).flatten(1)
    conv.zero_grad()
    out.backward(output_gradient(*out.shape))
    grads = {f"conv.{k}": p.grad for k, p in conv.named_parameters()}
    assert_same(found, Result(out.detach(), x.grad, grads, {}))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_weighted_layer_on_active_sets(ranks: int) -> None:
    """Outputs come first among the features, also where only some vertices are computed."""
    pyg = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed")
    graph = weighted(DIRECTED)
    torch.manual_seed(1)
    conv = pyg.GraphConv(IN, 4).double()
    x = torch.from_numpy(graph.features).double()
    wanted = conv(x, edge_index(graph), torch.from_numpy(graph.edge_weight).double())
    ids = np.array([1, 3, 4, 11, 19, 20, 36, 39])
    runs = even_runs(graph.num_vertices, ranks)

    def of_rank(comm: Comm) -> tuple[np.ndarray, Tensor]:
        mine = ids[(ids >= runs[comm.rank]) & (ids < runs[comm.rank + 1])]
        view = rank_graph(comm, graph, runs).layered(mine, 1)
        part = view.bipartite(x[view.columns])
        assert torch.equal(part.outputs, x[view.rows])
        out = conv((part.features, part.outputs), part.edge_index, part.edge_weight)
        return view.rows, out.detach()

    for rows, out in run_threads(of_rank, ranks):
        torch.testing.assert_close(out, wanted[rows].detach(), rtol=1e-10, atol=1e-10)


def test_classes_are_counted() -> None:
    assert Graph.from_pyg(pyg_data(DIRECTED)).num_classes == CLASSES
