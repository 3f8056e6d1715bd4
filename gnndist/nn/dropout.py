"""Dropout whose mask is a function of (seed, epoch, layer, global vertex id, feature)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gnndist.kernels import hash_dropout
from gnndist.rankgraph import RankGraph


class _HashDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, key: int, rows: int | Tensor) -> Tensor:
        ctx.mask = (p, key, rows)
        return hash_dropout(x, p, key, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        # The derivative is the mask itself, drawn again instead of stored.
        return hash_dropout(grad.contiguous(), *ctx.mask), None, None, None


class Dropout(nn.Module):
    """Zero each element with probability p and scale the others by 1 / (1 − p).

    Called as ``dropout(graph, h)`` with h [n_in, F]: rows that `graph` takes as inputs. The mask
    does not depend on the number of ranks, needs no storage and no generator state.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout {p}: allowed are 0 to 1")
        self.p = p

    def forward(self, graph: RankGraph, h: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return h
        out: Tensor = _HashDropout.apply(  # type: ignore[no-untyped-call]
            h.contiguous(), self.p, graph.clock.next_key(), graph.column_ids
        )
        return out

    def extra_repr(self) -> str:
        return f"p={self.p}"
