"""The model zoo: what `--model` names.

Every function takes (in_channels, out_channels) and its options as keywords, and returns a module
called as ``model(graph, x)``: x [n_in, in_channels] → logits [n_out, out_channels].
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Literal

from torch import Tensor, nn

from gnndist.nn.arguments import at_least
from gnndist.nn.dropout import Dropout
from gnndist.nn.gat import GATConv, GATv2Conv
from gnndist.nn.gcn import GCNConv
from gnndist.nn.gin import GINConv
from gnndist.nn.jumping import Mode
from gnndist.nn.propagation import APPNP, SGConv
from gnndist.nn.sage import Aggr, SAGEConv
from gnndist.nn.sequential import Sequential
from gnndist.nn.stack import Norm, Stack, make_norm
from gnndist.rankgraph import RankGraph

Jk = Mode | Literal["none"]


def _widths(in_channels: int, hidden: int, layers: int, out_channels: int, jk: Jk) -> list[int]:
    """What each convolution takes and, last, what the last one returns."""
    at_least(1, hidden=hidden, layers=layers)
    return [in_channels, *[hidden] * (layers - 1), hidden if jk != "none" else out_channels]


def gcn(
    in_channels: int,
    out_channels: int,
    *,
    hidden: int = 256,
    layers: int = 2,
    dropout: float = 0.5,
    input_dropout: float = 0.0,
    norm: Norm = "none",
    residual: bool = False,
    jk: Jk = "none",
) -> Stack:
    """GCN (Kipf and Welling 2017)."""
    widths = _widths(in_channels, hidden, layers, out_channels, jk)
    return Stack(
        [GCNConv(a, b) for a, b in itertools.pairwise(widths)],
        widths,
        norm=norm,
        residual=residual,
        jk=jk,
        outputs=out_channels,
        dropout=dropout,
        input_dropout=input_dropout,
    )


def sage(
    in_channels: int,
    out_channels: int,
    *,
    hidden: int = 256,
    layers: int = 2,
    dropout: float = 0.5,
    input_dropout: float = 0.0,
    norm: Norm = "none",
    residual: bool = False,
    jk: Jk = "none",
    aggr: Aggr = "mean",
    l2_normalize: bool = False,
) -> Stack:
    """GraphSAGE on full neighbourhoods (Hamilton et al. 2017)."""
    widths = _widths(in_channels, hidden, layers, out_channels, jk)
    convs = [
        SAGEConv(a, b, aggr, normalize=l2_normalize and k < layers - 1)
        for k, (a, b) in enumerate(itertools.pairwise(widths))
    ]
    return Stack(
        convs,
        widths,
        norm=norm,
        residual=residual,
        jk=jk,
        outputs=out_channels,
        dropout=dropout,
        input_dropout=input_dropout,
    )


def gin(
    in_channels: int,
    out_channels: int,
    *,
    hidden: int = 256,
    layers: int = 2,
    dropout: float = 0.5,
    input_dropout: float = 0.0,
    norm: Norm = "none",
    residual: bool = False,
    jk: Jk = "none",
    train_eps: bool = False,
) -> Stack:
    """GIN (Xu et al. 2019), each layer an MLP of two linear layers with the norm between them."""
    widths = _widths(in_channels, hidden, layers, out_channels, jk)

    def mlp(a: int, b: int) -> Sequential:
        between = make_norm(norm, hidden)
        inner = [] if between is None else [between]
        return Sequential(nn.Linear(a, hidden), *inner, nn.ReLU(), nn.Linear(hidden, b))

    return Stack(
        [GINConv(mlp(a, b), train_eps=train_eps) for a, b in itertools.pairwise(widths)],
        widths,
        norm=norm,
        residual=residual,
        jk=jk,
        outputs=out_channels,
        dropout=dropout,
        input_dropout=input_dropout,
    )


def _attention(
    kind: type[GATConv] | type[GATv2Conv],
    in_channels: int,
    out_channels: int,
    *,
    hidden: int = 256,
    layers: int = 2,
    dropout: float = 0.5,
    input_dropout: float = 0.0,
    norm: Norm = "none",
    residual: bool = False,
    jk: Jk = "none",
    heads: int = 8,
    output_heads: int = 1,
    attention_dropout: float = 0.0,
) -> Stack:
    """GAT (Veličković et al. 2018) or GATv2 (Brody et al. 2022): hidden layers of `heads` heads
    side by side, `hidden` wide together, ELU between them, output heads averaged."""
    at_least(1, heads=heads, output_heads=output_heads)
    widths = _widths(in_channels, hidden, layers, out_channels, jk)
    if hidden % heads:
        raise ValueError(f"hidden = {hidden}, heads = {heads}: hidden must be a multiple of heads")
    convs: list[nn.Module] = []
    for k, (a, b) in enumerate(itertools.pairwise(widths)):
        if k == layers - 1 and jk == "none":
            convs.append(kind(a, b, output_heads, concat=False, dropout=attention_dropout))
        else:
            convs.append(kind(a, b // heads, heads, dropout=attention_dropout))
    return Stack(
        convs,
        widths,
        norm=norm,
        residual=residual,
        jk=jk,
        outputs=out_channels,
        dropout=dropout,
        input_dropout=input_dropout,
        activation="elu",
    )


def sgc(in_channels: int, out_channels: int, *, hops: int = 0, input_dropout: float = 0.0) -> Stack:
    """SGC (Wu et al. 2019): `hops` propagations (0: 2) and one linear layer."""
    conv = SGConv(in_channels, out_channels, K=hops or 2)
    return Stack([conv], [in_channels, out_channels], input_dropout=input_dropout)


class Appnp(nn.Module):
    """APPNP (Gasteiger et al. 2019): an MLP of `layers` linear layers, then `hops` propagations
    (0: 10) that return to the start with probability `teleport`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: int = 256,
        layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        hops: int = 0,
        teleport: float = 0.1,
    ) -> None:
        super().__init__()
        widths = _widths(in_channels, hidden, layers, out_channels, "none")
        self.input_dropout = Dropout(input_dropout)
        self.lins = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.dropout = Dropout(dropout)
        self.propagate = APPNP(K=hops or 10, alpha=teleport)

    @property
    def num_layers(self) -> int:
        """Views of the graph that a forward pass uses."""
        return self.propagate.K

    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        h = self.input_dropout(graph, x)
        for lin in self.lins[:-1]:
            h = self.dropout.after_relu(graph, lin(h))
        out: Tensor = self.propagate(graph, self.lins[-1](h))
        return out


MODELS: Mapping[str, Callable[..., nn.Module]] = {
    "gcn": gcn,
    "sage": sage,
    "gin": gin,
    "gat": functools.partial(_attention, GATConv),
    "gatv2": functools.partial(_attention, GATv2Conv),
    "sgc": sgc,
    "appnp": Appnp,
}
