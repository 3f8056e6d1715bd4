"""GraphSAGE (Hamilton, Ying and Leskovec, NeurIPS 2017)."""

from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from gnndist.nn.arguments import at_least, one_of
from gnndist.nn.maximum import max_of_neighbours
from gnndist.operators import Aggregation
from gnndist.rankgraph import RankGraph

Aggr = Literal["mean", "max", "sum"]


class SAGEConv(nn.Module):
    """W₁ aggr_{j → i} x_j + b + W₂ x_i (Hamilton et al. 2017, algorithm 1, lines 4 and 5).

    Called as ``conv(graph, h)``: h is [n_in, in_channels], the result [n_out, out_channels]. Edge
    weights are not used. Names, defaults and initialisation are torch_geometric's, and so is the
    state_dict: `lin_l` for the neighbours, `lin_r` for the vertex itself.

    Parameters
    ----------
    aggr:
        mean, max or sum over in-neighbours; a vertex without any has zeros. The gradient of a
        maximum is shared evenly by all neighbours that have it.
    normalize:
        divide each output row by its L2 norm (line 7).
    root_weight:
        add W₂ x_i.
    bias:
        add b.

    Raises
    ------
    ValueError
        a width below 1, or another `aggr`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        aggr: Aggr = "mean",
        *,
        normalize: bool = False,
        root_weight: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        at_least(1, in_channels=in_channels, out_channels=out_channels)
        one_of(get_args(Aggr), aggr=aggr)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.aggr = aggr
        self.normalize = normalize
        self.lin_l = nn.Linear(in_channels, out_channels, bias=bias)
        self.lin_r = nn.Linear(in_channels, out_channels, bias=False) if root_weight else None

    def reset_parameters(self) -> None:
        """Kaiming-uniform weights and uniform bias, torch.nn.Linear's own."""
        self.lin_l.reset_parameters()
        if self.lin_r is not None:
            self.lin_r.reset_parameters()

    def forward(self, graph: RankGraph, h: Tensor) -> Tensor:
        out = self.without_bias(graph, h)
        if self.bias is not None:
            out.add_(self.bias)  # the sum needs no memory of its own
        return F.normalize(out, dim=-1) if self.normalize else out

    @property
    def bias(self) -> nn.Parameter | None:
        """[out_channels] b."""
        return self.lin_l.bias

    def without_bias(
        self, graph: RankGraph, h: Tensor, *, overwrite_gradient: bool = False
    ) -> Tensor:
        """W₁ aggr x_j + W₂ x_i, for whoever adds the bias in one pass with what follows.

        `overwrite_gradient`: as in `RankGraph.aggregate_linear`.
        """
        root = None if self.lin_r is None else self.lin_r.weight
        if self.aggr != "max":
            aggregation = Aggregation(norm=self.aggr, weighted=False)
            return graph.aggregate_linear(
                h, self.lin_l.weight, aggregation, root, overwrite_gradient=overwrite_gradient
            )
        out = F.linear(max_of_neighbours(graph, h), self.lin_l.weight)
        return out if root is None else out + F.linear(graph.own(h), root)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, aggr={self.aggr}"
