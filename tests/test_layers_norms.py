"""Batch norm over all ranks, layer norm, jumping knowledge, dropout, sequences of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layers import (
    GRAPHS,
    IN,
    Result,
    assert_same,
    empty_in_the_middle,
    even_runs,
    gathered,
    one_rank,
    output_gradient,
    rank_graph,
)
from threads import run_threads
from torch import Tensor

from gnndist import nn
from gnndist.comm import Comm, SingleComm
from gnndist.nn.norms import global_statistics
from gnndist.rankgraph import RankGraph


def torchs_own(module: torch.nn.BatchNorm1d, x: Tensor) -> Result:
    """What torch's batch norm computes on the whole matrix."""
    x = x.clone().requires_grad_()
    out = module(x)
    out.backward(output_gradient(*out.shape))
    grads = {k: p.grad for k, p in module.named_parameters()}
    return Result(out.detach(), x.grad, grads, dict(module.named_buffers()))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": None}, {"affine": False, "eps": 0.1}, {"track_running_stats": False}],
    ids=["default", "plain average", "no parameters", "no running statistics"],
)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_batch_norm_is_torchs_on_all_ranks(
    ranks: int, options: dict[str, object], training: bool
) -> None:
    graph = GRAPHS["hub"]()
    runs = empty_in_the_middle(graph.num_vertices, ranks)
    torch.manual_seed(1)
    theirs = torch.nn.BatchNorm1d(IN, **options).double()
    for parameter in theirs.parameters():
        torch.nn.init.uniform_(parameter, 0.5, 2.0)
    x = torch.from_numpy(graph.features).double()
    theirs(3 * x + 1)  # running statistics that are not the initial ones
    ours = nn.BatchNorm(IN, **options).double()
    ours.load_state_dict(theirs.state_dict())
    theirs.train(training)
    found = gathered(run_threads(one_rank, ranks, ours, graph, runs, training))
    assert_same(found, torchs_own(theirs, x))


def test_the_state_dict_is_pygs_under_module() -> None:
    pyg = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed")
    theirs = pyg.BatchNorm(IN)
    theirs.load_state_dict({f"module.{k}": v for k, v in nn.BatchNorm(IN).state_dict().items()})
    pyg.LayerNorm(IN, mode="node").load_state_dict(nn.LayerNorm(IN).state_dict())


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) > 0),
    st.floats(-1e3, 1e3),
)
@settings(deadline=None, max_examples=25)
def test_statistics_are_those_of_all_rows(sizes: list[int], offset: float) -> None:
    rng = np.random.default_rng(sum(sizes))
    rows = torch.from_numpy(rng.standard_normal((sum(sizes), 3))) + offset
    parts = torch.split(rows, sizes)

    def of_rank(comm: Comm) -> tuple[int, Tensor, Tensor]:
        return global_statistics(parts[comm.rank], comm)

    for count, mean, variance in run_threads(of_rank, len(sizes)):
        assert count == len(rows)
        torch.testing.assert_close(mean, rows.mean(0), rtol=1e-12, atol=1e-12)
        # Sums of squares about zero: their rounding is relative to the offset's square.
        torch.testing.assert_close(
            variance, rows.var(0, correction=0), rtol=1e-9, atol=1e-14 * (1 + offset**2)
        )


def test_batch_norm_refuses_some_of_the_vertices() -> None:
    graph = GRAPHS["symmetric"]()
    view = rank_graph(SingleComm(), graph, even_runs(graph.num_vertices, 1))
    first = view.layered(np.array([2, 3]), 1)
    norm = nn.BatchNorm(IN)
    with pytest.raises(ValueError, match="needs_every_vertex"):
        norm(first.outputs, torch.ones(2, IN))
    norm.eval()
    assert norm(first.outputs, torch.ones(2, IN)).shape == (2, IN)


def test_batch_norm_refuses_other_widths_and_one_vertex() -> None:
    graph = GRAPHS["no edges"]()
    view = rank_graph(SingleComm(), graph, even_runs(graph.num_vertices, 1))
    with pytest.raises(ValueError, match=r"\(9, 4\): allowed is \(n, 5\)"):
        nn.BatchNorm(5)(view, torch.ones(9, 4))
    one = graph.with_(indptr=np.zeros(2, np.int64))
    view = rank_graph(SingleComm(), one, even_runs(1, 1))
    with pytest.raises(ValueError, match="a graph of 1 vertices"):
        nn.BatchNorm(5)(view, torch.ones(1, 5))


def test_layer_norm_is_torchs() -> None:
    graph = GRAPHS["hub"]()
    ours, theirs = nn.LayerNorm(IN).double(), torch.nn.LayerNorm(IN).double()
    for module in (ours, theirs):
        torch.manual_seed(0)
        for parameter in module.parameters():
            torch.nn.init.uniform_(parameter)
    runs = empty_in_the_middle(graph.num_vertices, 3)
    found = gathered(run_threads(one_rank, 3, ours, graph, runs, True))
    assert_same(found, torchs_own(theirs, torch.from_numpy(graph.features).double()))


@pytest.mark.parametrize("mode", ["cat", "max", "lstm"])
def test_jumping_knowledge_is_pygs(mode: str) -> None:
    pyg = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed")
    theirs = pyg.JumpingKnowledge(mode, channels=4, num_layers=3).double()
    ours = nn.JumpingKnowledge(mode, channels=4, num_layers=3).double()
    ours.load_state_dict(theirs.state_dict())
    outputs = list(torch.randn(3, 8, 4, dtype=torch.float64, requires_grad=True).unbind())
    found, wanted = ours(outputs), theirs(outputs)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(wanted)
    for a, b in zip(
        torch.autograd.grad(found, outputs, weights),
        torch.autograd.grad(wanted, outputs, weights),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    empty = [torch.ones(0, 4, dtype=torch.float64)] * 3
    assert ours(empty).shape == (0, 12 if mode == "cat" else 4)


class Sequence(torch.nn.Module):
    """Dropout, a layer, and the pointwise modules on what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([nn.GCNConv(IN, 4), nn.GCNConv(4, 3)])
        self.between = nn.Sequential(
            nn.LayerNorm(4),
            torch.nn.Tanh(),
            nn.Sequential(nn.Dropout(0.4), torch.nn.Linear(4, 4)),
        )

    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        h = self.convs[0](graph.at(0), x)
        return self.convs[1](graph.at(1), self.between(graph.at(1), h))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_masks_on_active_sets_are_those_of_the_whole_graph(ranks: int) -> None:
    graph = GRAPHS["directed"]()
    wanted = np.array([0, 5, 6, 17, 23, 38])
    torch.manual_seed(2)
    module = Sequence().double()
    runs = even_runs(graph.num_vertices, ranks)

    def of_rank(comm: Comm) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.from_numpy(graph.features).double()
        whole = rank_graph(comm, graph, runs)
        everything = torch.empty(graph.num_vertices, 3, dtype=torch.float64)
        everything[whole.rows] = module(whole, x[whole.columns])
        mine = wanted[(wanted >= runs[comm.rank]) & (wanted < runs[comm.rank + 1])]
        whole.clock.start_epoch(whole.clock.epoch)
        view = whole.layered(mine, 2)
        return everything[view.at(1).rows], module(view, x[view.columns]), everything

    for whole, active, _ in run_threads(of_rank, ranks):
        torch.testing.assert_close(active, whole, rtol=1e-12, atol=1e-12)


def test_relu_with_dropout_is_relu_then_dropout() -> None:
    graph = GRAPHS["hub"]()
    view = rank_graph(SingleComm(), graph, even_runs(graph.num_vertices, 1))
    dropout = nn.Dropout(0.3)
    x = torch.randn(graph.num_vertices, 7, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(7, dtype=torch.float64, requires_grad=True)
    for training in (True, False):
        dropout.train(training)
        view.clock.start_epoch(1)
        fused = dropout.after_relu(view, x, bias)
        view.clock.start_epoch(1)
        apart = dropout(view, (x + bias).relu())
        torch.testing.assert_close(fused, apart)
        assert bool((fused == 0).any())
        weights = torch.randn_like(apart)
        for a, b in zip(
            torch.autograd.grad(fused, (x, bias), weights),
            torch.autograd.grad(apart, (x, bias), weights),
            strict=True,
        ):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.GCNConv(0, 3), "in_channels = 0: allowed are integers from 1"),
        (lambda: nn.GCNConv(3, 2.5), "out_channels = 2.5"),
        (lambda: nn.SAGEConv(3, 3, "median"), "aggr = 'median': allowed are mean, max, sum"),
        (lambda: nn.GATConv(3, 3, heads=0), "heads = 0"),
        (lambda: nn.GATConv(3, 3, dropout=1.5), "dropout = 1.5: allowed are 0 to 1"),
        (lambda: nn.GATv2Conv(3, 3, negative_slope=float("nan")), "negative_slope = nan"),
        (lambda: nn.GINConv(torch.nn.Identity(), eps=float("inf")), "eps = inf"),
        (
            lambda: nn.GINConv(torch.nn.Sequential(torch.nn.BatchNorm1d(3))),
            r"nn\.0 is torch\.nn\.BatchNorm1d",
        ),
        (lambda: nn.Sequential(torch.nn.Dropout()), r"Sequential\.0 is torch\.nn\.Dropout"),
        (lambda: nn.SGConv(3, 3, K=0), "K = 0"),
        (lambda: nn.APPNP(3, 1.2), "alpha = 1.2"),
        (lambda: nn.Dropout(-0.1), "dropout = -0.1"),
        (lambda: nn.BatchNorm(0), "num_features = 0"),
        (lambda: nn.LayerNorm(0), "num_features = 0"),
        (lambda: nn.JumpingKnowledge("sum"), "mode = 'sum': allowed are cat, max, lstm"),
        (lambda: nn.JumpingKnowledge("lstm"), "needs both"),
    ],
)
def test_bad_arguments_are_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_negative_degrees_are_refused_on_every_rank() -> None:
    graph = GRAPHS["directed"]()
    weight = np.ones(graph.num_edges, np.float32)
    vertex = int(np.argmax(np.diff(graph.indptr)))
    weight[graph.indptr[vertex] : graph.indptr[vertex + 1]] = -2
    graph = graph.with_(edge_weight=weight)

    def of_rank(comm: Comm) -> str:
        view = rank_graph(comm, graph, even_runs(graph.num_vertices, 3))
        x = torch.from_numpy(graph.features).double()[view.columns]
        with pytest.raises(ValueError, match=f"vertex {vertex} ") as caught:
            nn.GCNConv(IN, 2).double()(view, x)
        assert nn.SAGEConv(IN, 2).double()(view, x).isfinite().all()
        return str(caught.value)

    assert len(set(run_threads(of_rank, 3))) == 1
