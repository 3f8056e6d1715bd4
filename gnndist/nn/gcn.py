"""Graph convolution (Kipf and Welling, ICLR 2017)."""

import torch
from torch import Tensor, nn

from gnndist.nn.arguments import at_least
from gnndist.operators import Aggregation
from gnndist.rankgraph import RankGraph


class GCNConv(nn.Module):
    """Â X W + b, with Â = D^-½ (A + I) D^-½ (Kipf and Welling 2017, eq. 2).

    Called as ``conv(graph, h)``: h is [n_in, in_channels], the result [n_out, out_channels]. A is
    weighted if the graph is. Names, defaults and initialisation are torch_geometric's, and so is
    the state_dict.

    Parameters
    ----------
    add_self_loops:
        give every vertex without one an edge of weight 1 to itself; by default, if `normalize`.
    normalize:
        scale by D^-½ on both sides; otherwise the plain (weighted) sum.
    bias:
        add a learnt bias, zero at first.

    Raises
    ------
    ValueError
        a width below 1; when called, a vertex whose edge weights sum to less than 0.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        at_least(1, in_channels=in_channels, out_channels=out_channels)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.aggregation = Aggregation(
            norm="symmetric" if normalize else "sum",
            self_loops=normalize if add_self_loops is None else add_self_loops,
        )
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform weight, zero bias."""
        nn.init.xavier_uniform_(self.lin.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, graph: RankGraph, h: Tensor) -> Tensor:
        out = self.without_bias(graph, h)
        return (
            out if self.bias is None else out.add_(self.bias)
        )  # the sum needs no memory of its own

    def without_bias(
        self, graph: RankGraph, h: Tensor, *, overwrite_gradient: bool = False
    ) -> Tensor:
        """Â X W, for whoever adds the bias in one pass with what follows.

        `overwrite_gradient`: as in `RankGraph.aggregate_linear`.
        """
        return graph.aggregate_linear(
            h, self.lin.weight, self.aggregation, overwrite_gradient=overwrite_gradient
        )

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}"
