"""Models as users write them, named as ``user_models:Class``."""

from typing import Any

import torch
from torch import Tensor

from gnndist import nn
from gnndist.rankgraph import RankGraph


class WithBatchNorm(torch.nn.Module):
    """Says its depth, but not that batch norm needs every vertex."""

    num_layers = 2

    def __init__(self, in_channels: int, out_channels: int, *, hidden: int = 8) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(
            [nn.SAGEConv(in_channels, hidden), nn.GCNConv(hidden, out_channels)]
        )
        self.norm = nn.BatchNorm(hidden)
        self.dropout = nn.Dropout(0.3)

    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        h = self.norm(graph.at(0).outputs, self.convs[0](graph.at(0), x))
        return self.convs[1](graph.at(1), self.dropout(graph.at(1), h.relu()))


class OfOtherLibraries(torch.nn.Module):
    """Layers of torch_geometric and gnndist, each on its own view of the graph."""

    num_layers = 3

    def __init__(self, in_channels: int, out_channels: int, *, hidden: int = 8) -> None:
        import torch_geometric.nn as pyg

        super().__init__()
        self.first = pyg.TransformerConv(in_channels, hidden, heads=2)
        self.second = nn.GATConv(2 * hidden, hidden, heads=2, dropout=0.2)
        self.third = pyg.GATv2Conv(2 * hidden, out_channels)
        self.dropout = nn.Dropout(0.3)

    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        h = self.of_pyg(self.first, graph.at(0), x).relu()
        h = self.second(graph.at(1), self.dropout(graph.at(1), h)).relu()
        return self.of_pyg(self.third, graph.at(2), self.dropout(graph.at(2), h))

    def of_pyg(self, conv: torch.nn.Module, view: RankGraph, h: Tensor) -> Tensor:
        part = view.bipartite(h)
        out: Tensor = conv((part.features, part.outputs), part.edge_index)
        return out


class OfUnknownDepth(torch.nn.Module):
    """Says nothing of its depth, and takes whatever options there are."""

    def __init__(self, in_channels: int, out_channels: int, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.conv = nn.GINConv(torch.nn.Linear(in_channels, out_channels), train_eps=True)

    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        out: Tensor = self.conv(graph, x)
        return out


class OfAnotherWidth(torch.nn.Module):
    """One output more than there are classes; `hidden` is not used."""

    def __init__(self, in_channels: int, out_channels: int, *, hidden: int = 8) -> None:
        super().__init__()
        self.conv = nn.GCNConv(in_channels, out_channels + 1)

    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        out: Tensor = self.conv(graph, x)
        return out
