"""Graph attention networks: GAT (Veličković et al., ICLR 2018) and GATv2 (Brody et al., ICLR 2022).

The score of an edge j → i is linear in both ends' features before its LeakyReLU (GAT), or takes
the LeakyReLU first and is then able to rank neighbours differently for each vertex (GATv2).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gnndist.kernels import gat_backward, gat_forward, gatv2_backward, gatv2_forward
from gnndist.neighbours import Neighbourhood
from gnndist.nn.arguments import at_least, finite, probability
from gnndist.nn.attention import Attention, Kernels
from gnndist.rankgraph import RankGraph


class _Attention(nn.Module, ABC):
    """What both kinds share: arguments, the two sides and their combination."""

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
    def sources(self, h: Tensor) -> Tensor:
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
        sources = self.sources(h)
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
            return lambda: self.sources(features)
        return around.exchange(sources).wait

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}"


_GAT = Kernels(gat_forward, gat_backward)
_GATV2 = Kernels(gatv2_forward, gatv2_backward)


class GATConv(_Attention):
    """Σ_j α_ij W x_j, α_ij = softmax_j LeakyReLU(a_srcᵀ W x_j + a_dstᵀ W x_i) (Veličković et al.
    2018, eq. 3, 5 and 6), over the in-neighbours j of i and i itself.

    Called as ``conv(graph, h)``: h is [n_in, in_channels], the result
    [n_out, heads · out_channels], or [n_out, out_channels] where heads are averaged. Edge weights
    are not used. Names, defaults, initialisation and state_dict are torch_geometric's.

    W x_j of halo vertices travels while attention over owned neighbours is computed.

    Parameters
    ----------
    heads:
        attentions computed side by side.
    concat:
        heads one beside the other; otherwise their mean.
    negative_slope:
        LeakyReLU's.
    dropout:
        probability of leaving an edge's α out in training, a function of seed, epoch, layer, both
        ends and head.
    add_self_loops:
        give every vertex without one an edge to itself.
    bias:
        add a learnt bias.

    Raises
    ------
    ValueError
        a width or `heads` below 1, `dropout` outside 0 … 1 or 1 itself, a slope that is not finite.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops, bias
        )
        self.lin = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform weights and attention vectors, zero bias."""
        nn.init.xavier_uniform_(self.lin.weight)
        glorot(self.att_src)
        glorot(self.att_dst)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def sources(self, h: Tensor) -> Tensor:
        out: Tensor = self.lin(h)
        return out

    def targets(self, graph: RankGraph, h: Tensor, sources: Tensor) -> Tensor:
        return (self._by_head(graph.own(sources)) * self.att_dst).sum(-1)

    @property
    def kernels(self) -> Kernels:
        return _GAT

    def inputs(self, sources: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return sources, (sources * self.att_src).sum(-1), targets


class GATv2Conv(_Attention):
    """Σ_j α_ij (W_l x_j + b_l), α_ij = softmax_j aᵀ LeakyReLU(W_l x_j + b_l + W_r x_i + b_r)
    (Brody et al. 2022, eq. 7), over the in-neighbours j of i and i itself.

    Called as ``conv(graph, h)``: h is [n_in, in_channels], the result
    [n_out, heads · out_channels], or [n_out, out_channels] where heads are averaged. Edge weights
    are not used. Names, defaults, initialisation and state_dict are torch_geometric's.

    Parameters
    ----------
    share_weights:
        W_r = W_l.
    heads, concat, negative_slope, dropout, add_self_loops, bias:
        as in `GATConv`; `bias` is also that of W_l and W_r.

    Raises
    ------
    ValueError
        as `GATConv`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        bias: bool = True,
        share_weights: bool = False,
    ) -> None:
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops, bias
        )
        self.share_weights = share_weights
        self.lin_l = nn.Linear(in_channels, heads * out_channels, bias=bias)
        self.lin_r = self.lin_l
        if not share_weights:
            self.lin_r = nn.Linear(in_channels, heads * out_channels, bias=bias)
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform weights and attention vector, the products' biases as torch.nn.Linear
        has them, zero bias."""
        for lin in (self.lin_l, self.lin_r):
            lin.reset_parameters()
            nn.init.xavier_uniform_(lin.weight)
        glorot(self.att)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def sources(self, h: Tensor) -> Tensor:
        out: Tensor = self.lin_l(h)
        return out

    def targets(self, graph: RankGraph, h: Tensor, sources: Tensor) -> Tensor:
        own = graph.own(sources) if self.share_weights else self.lin_r(graph.own(h))
        return self._by_head(own)

    @property
    def kernels(self) -> Kernels:
        return _GATV2

    def inputs(self, sources: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return sources, targets, self.att[0]


def glorot(weight: Tensor) -> None:
    """Uniform in ±√(6 / (rows + columns)) of the last two dimensions, as torch_geometric has it."""
    bound = (6 / (weight.shape[-2] + weight.shape[-1])) ** 0.5
    nn.init.uniform_(weight, -bound, bound)
