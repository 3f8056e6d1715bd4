"""Graph isomorphism network (Xu, Hu, Leskovec and Jegelka, ICLR 2019)."""

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from gnndist.nn.arguments import finite, rank_free
from gnndist.nn.sequential import Sequential
from gnndist.operators import Aggregation
from gnndist.rankgraph import RankGraph

_SUM = Aggregation(norm="sum", weighted=False)


class GINConv(Module):
    """nn((1 + ε) x_i + Σ_{j → i} x_j) (Xu et al. 2019, eq. 4.1).

    Called as ``conv(graph, h)``: h is [n_in, F], the result what `nn` makes of [n_out, F]. Edge
    weights are not used. Names, defaults and the state_dict are torch_geometric's.

    Parameters
    ----------
    nn:
        a module from [n, F] to [n, out], row by row: its parameters are kept as they are. With
        norms or dropout in it, a `gnndist.nn.Sequential` of gnndist's own ones.
    eps:
        ε, or where it starts.
    train_eps:
        learn ε.

    Raises
    ------
    ValueError
        `nn` holds torch's BatchNorm or Dropout, or `eps` is not finite.
    """

    nn: Module
    eps: Tensor

    def __init__(self, nn: Module, eps: float = 0.0, train_eps: bool = False) -> None:
        super().__init__()
        rank_free(nn, "nn")
        finite(eps=eps)
        self.nn = nn
        self.initial_eps = eps
        start = torch.full((1,), float(eps))
        if train_eps:
            self.eps = Parameter(start)
        else:
            self.register_buffer("eps", start)

    def reset_parameters(self) -> None:
        """ε back to its start; the parameters of `nn` as each of its modules resets them."""
        self.eps.data.fill_(self.initial_eps)
        for module in self.nn.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()

    def forward(self, graph: RankGraph, h: Tensor) -> Tensor:
        total = graph.aggregate(h, _SUM) + (1 + self.eps) * graph.own(h)
        if isinstance(self.nn, Sequential):
            out: Tensor = self.nn(graph.outputs, total)
        else:
            out = self.nn(total)
        return out
