"""The element-wise maximum over in-neighbours, exact on any number of ranks.

Many neighbours may have the maximum (zeros after a ReLU). The gradient is shared evenly by all of
them, so it does not depend on their order nor on which of them are owned.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnndist.neighbours import Neighbours
from gnndist.rankgraph import RankGraph


def max_of_neighbours(graph: RankGraph, h: Tensor) -> Tensor:
    """max_{j → i} h_j for every output row i, 0 without in-neighbours: [n_in, F] → [n_out, F].

    Halo rows travel as they are, while the maximum over owned neighbours is found. That of the
    constant input is found once.
    """
    if graph.is_constant(h):
        return graph.once("max of neighbours", lambda: _max_of_neighbours(graph, h))
    return _max_of_neighbours(graph, h)


def _max_of_neighbours(graph: RankGraph, h: Tensor) -> Tensor:
    around = graph.neighbourhood(h.dtype)
    if around.alone:
        peak, _ = _Peak.apply(h, around.owned)  # type: ignore[no-untyped-call]
    else:
        halo = around.exchange(h)
        owned = _Peak.apply(h, around.owned)  # type: ignore[no-untyped-call]
        far = _Peak.apply(halo.wait(), around.halo)  # type: ignore[no-untyped-call]
        peak = _Greater.apply(*owned, *far)  # type: ignore[no-untyped-call]
    out: Tensor = peak.masked_fill(peak == -torch.inf, 0.0)
    return out


class _Peak(torch.autograd.Function):
    """The maximum over the neighbours of one side, −∞ without any, and how many have it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edges: Neighbours) -> tuple[Tensor, Tensor]:
        gathered = x[edges.column]
        degree = edges.csr.indptr.diff()
        peak = torch.segment_reduce(gathered, "max", lengths=degree, axis=0, unsafe=True)
        has = gathered == peak[edges.row]
        count = torch.zeros_like(peak).index_add_(0, edges.row, has.to(x.dtype))
        ctx.edges = edges
        ctx.save_for_backward(x, peak, count)
        ctx.mark_non_differentiable(count)
        return peak, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None]:
        x, peak, count = ctx.saved_tensors
        row, column = ctx.edges.row, ctx.edges.column
        share = (grad / count.clamp(min=1))[row]
        share.masked_fill_(x[column] != peak[row], 0.0)
        return torch.zeros_like(x).index_add_(0, column, share), None


class _Greater(torch.autograd.Function):
    """The greater of two sides' maxima; where they are equal, the gradient goes by their counts."""

    @staticmethod
    def forward(
        ctx: Any, near: Tensor, near_count: Tensor, far: Tensor, far_count: Tensor
    ) -> Tensor:
        peak = torch.maximum(near, far)
        near_count = near_count * (near == peak)
        far_count = far_count * (far == peak)
        ctx.save_for_backward(near_count / (near_count + far_count).clamp(min=1))
        return peak

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor, None]:
        (share,) = ctx.saved_tensors
        near = grad * share
        return near, None, grad - near, None
