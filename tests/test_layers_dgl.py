"""GCN, SAGE, GIN and GAT against DGL's layers with the same weights, in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from layers import (
    GRAPHS,
    IN,
    OUT,
    Result,
    assert_same,
    dgl_or_skip,
    edge_index,
    even_runs,
    gathered,
    mlp,
    one_rank,
    output_gradient,
)
from threads import run_threads
from torch import Tensor

from gnndist import nn

HEADS = 3
Renamed = dict[str, Callable[[dict[str, Tensor]], Tensor]]


def same(name: str) -> Callable[[dict[str, Tensor]], Tensor]:
    return lambda state: state[name]


def gcn(dgl: Any) -> tuple[torch.nn.Module, torch.nn.Module, Renamed]:
    ours = nn.GCNConv(IN, OUT, add_self_loops=False)
    theirs = dgl.nn.pytorch.GraphConv(IN, OUT, norm="both", allow_zero_in_degree=True)
    return ours, theirs, {"weight": lambda s: s["lin.weight"].T, "bias": same("bias")}


def sage(dgl: Any) -> tuple[torch.nn.Module, torch.nn.Module, Renamed]:
    names = {
        "fc_neigh.weight": same("lin_l.weight"),
        "fc_self.weight": same("lin_r.weight"),
        "fc_self.bias": same("lin_l.bias"),
    }
    return nn.SAGEConv(IN, OUT), dgl.nn.pytorch.SAGEConv(IN, OUT, "mean"), names


def gin(dgl: Any) -> tuple[torch.nn.Module, torch.nn.Module, Renamed]:
    ours = nn.GINConv(mlp(), 0.2, True)
    theirs = dgl.nn.pytorch.GINConv(mlp(), "sum", learn_eps=True)
    layers = ("0.weight", "0.bias", "2.weight", "2.bias")
    return (
        ours,
        theirs,
        {"eps": same("eps")} | {f"apply_func.{name}": same(f"nn.{name}") for name in layers},
    )


def gat(dgl: Any) -> tuple[torch.nn.Module, torch.nn.Module, Renamed]:
    ours = nn.GATConv(IN, 4, heads=HEADS, add_self_loops=False)
    theirs = dgl.nn.pytorch.GATConv(IN, 4, HEADS, allow_zero_in_degree=True)
    return (
        ours,
        theirs,
        {
            "fc.weight": same("lin.weight"),
            "attn_l": same("att_src"),
            "attn_r": same("att_dst"),
            "bias": same("bias"),
        },
    )


@pytest.mark.parametrize("graph", ["symmetric", "hub"])
@pytest.mark.parametrize("pair", [gcn, sage, gin, gat])
def test_equals_dgl(pair: Callable[[Any], Any], graph: str) -> None:
    dgl = dgl_or_skip()
    made_graph = GRAPHS[graph]()
    torch.manual_seed(0)
    ours, theirs, renamed = pair(dgl)
    ours, theirs = ours.double(), theirs.double()
    for name, parameter in ours.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.uniform_(parameter)
    theirs.load_state_dict({k: of(ours.state_dict()) for k, of in renamed.items()})

    runs = even_runs(made_graph.num_vertices, 1)
    found = gathered(run_threads(one_rank, 1, ours, made_graph, runs, False))

    sources, destinations = edge_index(made_graph)
    theirs_graph = dgl.graph((sources, destinations), num_nodes=made_graph.num_vertices)
    x = torch.from_numpy(np.asarray(made_graph.features)).double().requires_grad_()
    out = theirs(theirs_graph, x).flatten(1)
    out.backward(output_gradient(*out.shape))
    grads = {k: p.grad for k, p in theirs.named_parameters()}
    assert grads.keys() == renamed.keys()
    found.grads = {k: of(found.grads) for k, of in renamed.items()}
    assert_same(
        Result(found.out, found.grad_input, found.grads, {}),
        Result(out.detach(), x.grad, grads, {}),
    )
