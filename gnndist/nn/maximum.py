"""The element-wise maximum over in-neighbours, exact on any number of ranks.

Many neighbours may have the maximum (zeros after a ReLU). The gradient is shared evenly by all of
them, so it does not depend on their order nor on which of them are owned.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnndist.kernels import CSR, segment_max, segment_max_backward
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
    halo = None if around.alone else around.exchange(h)
    state = State(*segment_max(around.owned.csr, h.detach()))
    out: Tensor = _OfOwned.apply(h, around.owned.csr, state)  # type: ignore[no-untyped-call]
    if halo is not None:
        out = _WithHalo.apply(out, halo.wait(), around.halo.csr, state)  # type: ignore[no-untyped-call]
    return out


class State(NamedTuple):
    """The maximum over the neighbours so far; both sides' gradients need the final one."""

    out: Tensor
    """[n_out, F]"""
    ties: Tensor
    """[n_out, F] how many neighbours have it"""


def alias(tensor: Tensor) -> Tensor:
    """Another tensor with the same memory, a view of nothing: autograd's graph of the one does not
    hold the other."""
    other = tensor.new_empty(0)
    return other.set_(
        tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
    )


class _OfOwned(torch.autograd.Function):
    """The maximum over owned neighbours, found already: the state's."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, csr: CSR, state: State) -> Tensor:
        ctx.csr, ctx.state = csr, state
        ctx.save_for_backward(h)
        return alias(state.out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (h,) = ctx.saved_tensors
        return segment_max_backward(ctx.csr, grad, h, *ctx.state), None, None


class _WithHalo(torch.autograd.Function):
    """That and the halo's. Backward, the halo's gradients come first and leave first."""

    @staticmethod
    def forward(ctx: Any, near: Tensor, halo: Tensor, csr: CSR, state: State) -> Tensor:
        segment_max(csr, halo, state)
        ctx.csr, ctx.state = csr, state
        ctx.save_for_backward(halo)
        return alias(state.out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (halo,) = ctx.saved_tensors
        return grad, segment_max_backward(ctx.csr, grad, halo, *ctx.state), None, None
