"""Modules one after the other, some of which need to know the vertices they work on."""

from torch import Tensor, nn

from gnndist.nn.arguments import rank_free
from gnndist.nn.dropout import Dropout, Rows
from gnndist.nn.norms import BatchNorm, LayerNorm


class Sequential(nn.Sequential):
    """torch's Sequential, called as ``sequential(graph, h)``: h is [n, F].

    gnndist's norms and dropout are given the vertices as well, all other modules h alone. The
    state_dict is torch.nn.Sequential's. For rows that `graph` returns, ``graph.outputs``.

    Raises
    ------
    ValueError
        for a module of torch that would see this rank's rows alone, where gnndist has its own.
    """

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__(*modules)
        rank_free(self, "Sequential")

    def forward(self, rows: Rows, h: Tensor) -> Tensor:  # type: ignore[override]
        for module in self:
            h = (
                module(rows, h)
                if isinstance(module, BatchNorm | LayerNorm | Dropout | Sequential)
                else module(h)
            )
        return h
