"""GraphSAGE and GAT in gnndist's layers, in the form that all contenders share."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor

from gnndist.nn.gat import GATConv
from gnndist.nn.models import Stack
from gnndist.nn.sage import SAGEConv
from gnndist.rankgraph import RankGraph

HEADS = 4


def sage(
    in_channels: int, out_channels: int, *, hidden: int = 256, layers: int = 3, dropout: float = 0.5
) -> Stack:
    """GraphSAGE with mean aggregation."""
    widths = [in_channels, *[hidden] * (layers - 1), out_channels]
    return Stack([SAGEConv(a, b) for a, b in pairwise(widths)], dropout=dropout)


def gat(
    in_channels: int, out_channels: int, *, hidden: int = 64, layers: int = 2, dropout: float = 0.5
) -> Stack:
    """GAT, 4 heads of width `hidden` side by side, one in the last layer."""
    widths = [in_channels, *[hidden * HEADS] * (layers - 1)]
    inner = [GATConv(a, hidden, HEADS) for a, _ in pairwise(widths)]
    return _EluStack([*inner, GATConv(widths[-1], out_channels)], dropout=dropout)


class _EluStack(Stack):
    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        for layer, conv in enumerate(self.convs):
            view = graph.at(layer)
            if layer > 0:
                x = self.dropout(view, F.elu(x))
            x = conv(view, x)
        return x
