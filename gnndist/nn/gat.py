"""Graph attention networks: GAT (Veličković et al., ICLR 2018) and GATv2 (Brody et al., ICLR 2022).

The score of an edge j → i is linear in both ends' features before its LeakyReLU (GAT), or takes
the LeakyReLU first and is then able to rank neighbours differently for each vertex (GATv2).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gnndist.aggregate import Linear
from gnndist.kernels import (
    CSR,
    AttentionState,
    gat_backward,
    gat_forward,
    gatv2_backward,
    gatv2_forward,
)
from gnndist.nn.attention import Kernels
from gnndist.nn.attention_conv import AttentionConv, glorot
from gnndist.rankgraph import RankGraph


def block_diagonal(attention: Tensor) -> Tensor:
    """[heads, heads · D] with a head's vector in its row, so that scores are one product of
    matrices; `attention` is [heads, D]."""
    return torch.diag_embed(attention.t()).permute(1, 2, 0).flatten(1)


def _forward(csr: CSR, x: Tensor, a: Tensor, targets: Tensor, **options: Any) -> AttentionState:
    """GAT's, from a = block_diagonal(a_src) instead of the sources' scores."""
    return gat_forward(csr, x, x.flatten(1) @ a.t(), targets, **options)


def _backward(
    csr: CSR, grad: Tensor, x: Tensor, a: Tensor, targets: Tensor, *ends: Tensor, **options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    rows = x.flatten(1)
    found = gat_backward(csr, grad, x, rows @ a.t(), targets, *ends, **options)
    grad_x, grad_scores, grad_targets = found
    grad_x.flatten(1).addmm_(grad_scores, a)
    # In this order of factors: the other one is an order of magnitude slower for a few heads.
    return grad_x, grad_scores.t() @ rows, grad_targets


_GAT = Kernels(_forward, _backward)
_GATV2 = Kernels(gatv2_forward, gatv2_backward)


class GATConv(AttentionConv):
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

    def sources(self, graph: RankGraph, h: Tensor) -> Tensor:
        out: Tensor = Linear.apply(h, self.lin.weight, None, None, graph.buffers)  # type: ignore[no-untyped-call]
        return out

    def targets(self, graph: RankGraph, h: Tensor, sources: Tensor) -> Tensor:
        return graph.own(F.linear(sources, block_diagonal(self.att_dst[0])))

    @property
    def kernels(self) -> Kernels:
        return _GAT

    def inputs(self, sources: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return sources, block_diagonal(self.att_src[0]), targets


class GATv2Conv(AttentionConv):
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

    def sources(self, graph: RankGraph, h: Tensor) -> Tensor:
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
