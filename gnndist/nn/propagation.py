"""Layers that propagate several steps without weights in between."""

import torch
from torch import Tensor, nn

from gnndist.nn.arguments import at_least, probability
from gnndist.operators import Aggregation
from gnndist.rankgraph import RankGraph


class SGConv(nn.Module):
    """Âᴷ X W + b, with Â = D^-½ (A + I) D^-½ (Wu et al., ICML 2019, eq. 8).

    Called as ``conv(graph, h)``: h is [n_in, in_channels] for the first of K views (``graph``,
    ``graph.at(1)``, …), the result [n_out, out_channels] for the last. K exchanges each way, at
    the narrower of the two widths; where h is the constant input, none after the first time. Names,
    defaults, initialisation and state_dict are torch_geometric's.

    Parameters
    ----------
    K:
        steps.
    add_self_loops:
        give every vertex without one an edge of weight 1 to itself.
    bias:
        add a learnt bias.

    Raises
    ------
    ValueError
        a width or K below 1.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        K: int = 1,
        *,
        add_self_loops: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        at_least(1, in_channels=in_channels, out_channels=out_channels, K=K)
        self.K = K
        self.aggregation = Aggregation(norm="symmetric", self_loops=add_self_loops)
        self.lin = nn.Linear(in_channels, out_channels, bias=bias)

    def reset_parameters(self) -> None:
        """Kaiming-uniform weight and uniform bias, torch.nn.Linear's own."""
        self.lin.reset_parameters()

    def forward(self, graph: RankGraph, h: Tensor) -> Tensor:
        weight, bias = self.lin.weight, self.lin.bias
        narrows = weight.shape[0] < weight.shape[1] and graph.savings.linear_first
        if graph.is_constant(h) or not narrows:
            out: Tensor = self.lin(graph.propagate(h, self.aggregation, self.K))
            return out
        out = graph.propagate(h @ weight.t(), self.aggregation, self.K)
        return out if bias is None else out + bias

    def extra_repr(self) -> str:
        return f"K={self.K}"


class APPNP(nn.Module):
    """X ← (1 − α) Â X + α X⁰, K times (Gasteiger, Bojchevski and Günnemann, ICLR 2019, eq. 4).

    Called as ``layer(graph, h)``: h is [n_in, F] for the first of K views (``graph``,
    ``graph.at(1)``, …), the result [n_out, F] for the last. K exchanges each way; no weights.
    torch_geometric's names; its dropout of single edges is left out.

    Parameters
    ----------
    K:
        steps.
    alpha:
        α, the probability of returning to the start.
    add_self_loops:
        give every vertex without one an edge of weight 1 to itself.
    normalize:
        Â = D^-½ (A + I) D^-½; otherwise the plain (weighted) adjacency.

    Raises
    ------
    ValueError
        K below 1, α outside 0 … 1.
    """

    def __init__(
        self, K: int, alpha: float, *, add_self_loops: bool = True, normalize: bool = True
    ) -> None:
        super().__init__()
        at_least(1, K=K)
        probability(alpha=alpha)
        self.K = K
        self.alpha = alpha
        # As in torch_geometric, loops are a part of the normalisation.
        self.aggregation = Aggregation(
            norm="symmetric" if normalize else "sum", self_loops=add_self_loops and normalize
        )

    def forward(self, graph: RankGraph, h: Tensor) -> Tensor:
        start = h
        for step in range(self.K):
            view = graph.at(step)
            start = view.own(start)
            h = torch.lerp(view.aggregate(h, self.aggregation), start, self.alpha)
        return h

    def extra_repr(self) -> str:
        return f"K={self.K}, alpha={self.alpha}"
