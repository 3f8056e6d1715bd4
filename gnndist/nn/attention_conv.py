"""What all attention layers share: arguments, the two sides and their combination."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gnndist.neighbours import Neighbourhood
from gnndist.nn.arguments import at_least, finite, probability
from gnndist.nn.attention import Attention, Kernels
from gnndist.rankgraph import RankGraph


class AttentionConv(nn.Module, ABC):
    """A layer whose neighbours are weighted by a softmax over scores; arguments as `GATConv`."""

    bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int,
        concat: bool,
        negative_slope: float,
        dropout: float,
        add_self_loops: bool,
        bias: bool,
    ) -> None:
        super().__init__()
        at_least(1, in_channels=in_channels, out_channels=out_channels, heads=heads)
        probability(dropout=dropout)
        if dropout == 1:
            raise ValueError("dropout = 1: allowed are 0 to less than 1, which leaves some edges")
        finite(negative_slope=negative_slope)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.concat = concat
        self.negative_slope = negative_slope
        self.dropout = dropout
        self.add_self_loops = add_self_loops
        width = heads * out_channels if concat else out_channels
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    @abstractmethod
    def sources(self, graph: RankGraph, h: Tensor) -> Tensor:
        """What travels of each source: [n, in_channels] → [n, heads · out_channels]."""

    @abstractmethod
    def targets(self, graph: RankGraph, h: Tensor, sources: Tensor) -> Tensor:
        """What scores need of each destination, [n_out, …]."""

    @property
    @abstractmethod
    def kernels(self) -> Kernels:
        """This kind's."""

    @abstractmethod
    def inputs(self, sources: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the kernels take, from sources [s, heads, out_channels] and `targets`."""

    def forward(self, graph: RankGraph, h: Tensor) -> Tensor:
        around = graph.neighbourhood(h.dtype, self_loops=self.add_self_loops)
        dropout = None
        if self.training and self.dropout > 0:
            dropout = self.dropout, graph.clock.next_key()
        sources = self.sources(graph, h)
        arrive = self._exchange(graph, around, h, sources)
        targets = self.targets(graph, h, sources)
        attention = Attention(self.kernels, self.negative_slope, dropout)
        attention.take_in(around.owned, *self.inputs(self._by_head(sources), targets))
        if arrive is not None:
            attention.take_in(around.halo, *self.inputs(self._by_head(arrive()), targets))
        out = attention.result()
        out = out.flatten(1) if self.concat else out.mean(dim=1)
        return out if self.bias is None else out + self.bias

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows.view(-1, self.heads, self.out_channels)

    def _exchange(
        self, graph: RankGraph, around: Neighbourhood, h: Tensor, sources: Tensor
    ) -> Callable[[], Tensor] | None:
        """Start to exchange `sources`; what to call for those of the halo.

        The constant input itself is exchanged once instead, where it is not the wider of the two.
        """
        if around.alone:
            return None
        if graph.is_constant(h) and self.in_channels <= self.heads * self.out_channels:
            features = graph.once("halo", lambda: around.exchange(h).wait())
            return lambda: self.sources(graph, features)
        return around.exchange(sources).wait

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}"


def glorot(weight: Tensor) -> None:
    """Uniform in ±√(6 / (rows + columns)) of the last two dimensions, as torch_geometric has it."""
    bound = (6 / (weight.shape[-2] + weight.shape[-1])) ** 0.5
    nn.init.uniform_(weight, -bound, bound)
