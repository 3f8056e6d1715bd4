"""Layers on a rank's part of a graph, without stores: what every test of layers shares."""

import copy
import importlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from graphs import awkward
from torch import Tensor

from gnndist import nn
from gnndist.comm import Comm
from gnndist.graph import Graph
from gnndist.plan import Matrix, RankRows
from gnndist.rankgraph import RankGraph
from gnndist.training.gradients import sum_gradients

IN, OUT = 5, 6
SEED, EPOCH = 3, 2
Make = Callable[[], torch.nn.Module]


@dataclass(frozen=True)
class Case:
    """A layer as gnndist has it, and its counterpart in torch_geometric."""

    name: str
    make: Make
    make_pyg: Make
    weighted: bool = False
    """uses edge weights"""


def mlp() -> torch.nn.Module:
    """What GIN puts its sums through."""
    return torch.nn.Sequential(torch.nn.Linear(IN, 7), torch.nn.Tanh(), torch.nn.Linear(7, OUT))


def _case(name: str, kind: str, *arguments: Any, weighted: bool = False, **options: Any) -> Case:
    def make() -> torch.nn.Module:
        return getattr(nn, kind)(*arguments, **options)

    def make_pyg() -> torch.nn.Module:
        import torch_geometric.nn as pyg

        return getattr(pyg, kind)(*arguments, **options)

    return Case(name, make, make_pyg, weighted)


def _gin(name: str, *arguments: Any) -> Case:
    def make_pyg() -> torch.nn.Module:
        import torch_geometric.nn as pyg

        return pyg.GINConv(mlp(), *arguments)

    return Case(name, lambda: nn.GINConv(mlp(), *arguments), make_pyg)


def _cases() -> Iterator[Case]:
    yield _case("gcn narrowing", "GCNConv", IN, 3, weighted=True)
    yield _case("gcn widening", "GCNConv", IN, OUT, weighted=True)
    yield _case("gcn plain", "GCNConv", IN, OUT, normalize=False, bias=False, weighted=True)
    yield _case("gcn no loops", "GCNConv", IN, OUT, add_self_loops=False, weighted=True)
    for aggr in ("mean", "max", "sum"):
        yield _case(f"sage {aggr}", "SAGEConv", IN, OUT, aggr=aggr)
    yield _case("sage narrowing", "SAGEConv", IN, 3, normalize=True)
    yield _case("sage no root", "SAGEConv", IN, OUT, root_weight=False, bias=False)
    yield _gin("gin")
    yield _gin("gin eps", 0.3, True)
    for kind in ("GATConv", "GATv2Conv"):
        low = kind[:-4].lower()
        yield _case(f"{low}", kind, IN, OUT)
        yield _case(f"{low} heads", kind, IN, 3, heads=4, negative_slope=0.1)
        yield _case(f"{low} averaged", kind, IN, 3, heads=2, concat=False, bias=False)
        yield _case(f"{low} no loops", kind, IN, 3, heads=2, add_self_loops=False)
    yield _case("gatv2 shared", "GATv2Conv", IN, 3, heads=2, share_weights=True)
    yield _case("sgc", "SGConv", IN, 3, K=3, weighted=True)
    yield _case("sgc widening", "SGConv", IN, OUT, K=2, add_self_loops=False, weighted=True)
    yield _case("appnp", "APPNP", K=3, alpha=0.2, weighted=True)
    yield _case("appnp plain", "APPNP", K=2, alpha=0.2, normalize=False, weighted=True)


CASES = {case.name: case for case in _cases()}


def made(case: Case, seed: int = 0) -> torch.nn.Module:
    """The layer in float64; its weights a function of the seed, its biases not zero."""
    torch.manual_seed(seed)
    layer = case.make().double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(-1, 1)
    return layer


def weighted(graph: Graph, seed: int = 5) -> Graph:
    """Other weights on a weighted graph: zeros and negatives, each vertex's sum above 0."""
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.5, 2.0, graph.num_edges).astype(np.float32)
    weight[::7] = 0.0
    first = graph.indptr[:-1][np.diff(graph.indptr) > 3]
    weight[first] = -0.25
    weight[first + 1] = 1.0
    return graph.with_(edge_weight=weight, symmetric=False)


def hub(vertices: int = 30) -> Graph:
    """A vertex joined to all others, half of which have no other neighbour."""
    rng = np.random.default_rng(1)
    spokes = np.stack([np.zeros(vertices - 1, np.int64), np.arange(1, vertices)])
    edges = np.concatenate([spokes, rng.integers(0, vertices // 2, (2, vertices))], axis=1)
    features = rng.standard_normal((vertices, IN)).astype(np.float32)
    return Graph.from_edge_index(edges, num_vertices=vertices, symmetrize=True, features=features)


def no_edges(vertices: int = 9) -> Graph:
    """Isolated vertices only."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((vertices, IN)).astype(np.float32)
    return Graph.from_edge_index(
        np.zeros((2, 0), np.int64), num_vertices=vertices, features=features
    )


def tied(graph: Graph) -> Graph:
    """Features of few values, so that many neighbours have the maximum.

    None is 0: there torch's scatter_reduce, which torch_geometric uses, counts one neighbour more.
    """
    return graph.with_(features=np.round(np.asarray(graph.features)) + np.float32(0.25))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "symmetric": awkward,
    "directed": lambda: awkward(directed=True),
    "weighted": lambda: weighted(awkward(directed=True)),
    "hub": hub,
    "no edges": no_edges,
    "ties": lambda: tied(awkward(directed=True)),
}


def even_runs(vertices: int, ranks: int) -> np.ndarray:
    """Runs of nearly equal length."""
    return np.array([vertices * r // ranks for r in range(ranks + 1)], np.int64)


def empty_in_the_middle(vertices: int, ranks: int) -> np.ndarray:
    """Uneven runs; from three ranks on, one in the middle owns nothing."""
    runs = np.round(vertices * np.linspace(0, 1, ranks + 1) ** 1.5).astype(np.int64)
    if ranks > 2:
        runs[ranks // 2] = runs[ranks // 2 + 1]
    return runs


def rank_graph(comm: Comm, graph: Graph, runs: np.ndarray, **options: Any) -> RankGraph:
    """This rank's view of a graph whose vertices lie in their own order."""
    start, stop = int(runs[comm.rank]), int(runs[comm.rank + 1])
    first, last = int(graph.indptr[start]), int(graph.indptr[stop])
    weight = graph.edge_weight
    rows = RankRows(
        rank=comm.rank,
        runs=runs,
        rows=np.arange(start, stop),
        adjacency=Matrix(
            indptr=graph.indptr[start : stop + 1] - first,
            indices=np.asarray(graph.indices[first:last], np.int64),
            values=None if weight is None else np.asarray(weight[first:last], np.float64),
            num_columns=graph.num_vertices,
        ),
    )
    view = RankGraph.create(rows, comm, seed=SEED, **options)
    view.clock.start_epoch(EPOCH)
    return view


@dataclass
class Result:
    """What a module computed on all ranks, by vertex."""

    out: Tensor
    grad_input: Tensor
    grads: dict[str, Tensor]
    buffers: dict[str, Tensor]


def one_rank(
    comm: Comm, module: torch.nn.Module, graph: Graph, runs: np.ndarray, training: bool
) -> Any:
    """Forward and backward of ``module(graph, x)`` on this rank, with a fixed output gradient."""
    torch.set_num_threads(1)
    module = copy.deepcopy(module).train(training)
    view = rank_graph(comm, graph, runs)
    columns = torch.from_numpy(view.columns)
    x = torch.from_numpy(np.asarray(graph.features)).double()[columns].requires_grad_()
    out = module(view, x)
    rows = torch.from_numpy(view.rows)
    out.backward(output_gradient(graph.num_vertices, out.shape[1])[rows])
    sum_gradients(module.parameters(), comm)
    grad_input = torch.zeros_like(x) if x.grad is None else x.grad
    grads = {k: p.grad for k, p in module.named_parameters() if p.grad is not None}
    buffers = {k: b.clone() for k, b in module.named_buffers()}
    return rows, out.detach(), columns, grad_input, grads, buffers


def output_gradient(vertices: int, width: int) -> Tensor:
    """A gradient for the output, [N, width], a function of its shape alone."""
    where = torch.arange(vertices * width, dtype=torch.float64).view(vertices, width)
    return torch.sin(where * math.sqrt(2)) + 0.1


def gathered(parts: list[Any]) -> Result:
    """The ranks' results by vertex; what all ranks must agree on is checked to be equal."""
    rows, out, columns, grad_input, grads, buffers = zip(*parts, strict=True)
    for others in (grads, buffers):
        for other in others[1:]:
            assert other.keys() == others[0].keys()
            for name, value in other.items():
                assert torch.equal(value, others[0][name]), name
    row, column = torch.cat(rows), torch.cat(columns)
    assert torch.equal(row.sort().values, torch.arange(len(row)))
    return Result(
        torch.cat(out)[row.argsort()],
        torch.cat(grad_input)[column.argsort()],
        grads[0],
        buffers[0],
    )


def assert_same(found: Result, wanted: Result, tolerance: float = 1e-9) -> None:
    """Output, input gradient, parameter gradients and buffers."""

    def close(a: Tensor, b: Tensor, what: str) -> None:
        torch.testing.assert_close(
            a, b, rtol=tolerance, atol=tolerance, msg=lambda m: f"{what}: {m}"
        )

    close(found.out, wanted.out, "output")
    close(found.grad_input, wanted.grad_input, "input gradient")
    assert found.grads.keys() == wanted.grads.keys()
    for name, value in wanted.grads.items():
        close(found.grads[name], value, f"gradient of {name}")
    for name, value in wanted.buffers.items():
        close(found.buffers[name], value, name)


def dgl_or_skip() -> Any:
    """DGL, if it works with the installed torch (its mismatches raise more than ImportError)."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        return importlib.import_module("dgl")
    except Exception as error:
        pytest.skip(f"dgl does not import ({error}); dgl==1.1.3 with packaging is known to work")


def edge_index(graph: Graph) -> Tensor:
    """[2, E] int64, sources → destinations."""
    destination = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return torch.from_numpy(np.stack([graph.indices, destination]).astype(np.int64))
