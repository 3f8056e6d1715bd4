"""Dropout whose mask is a function of (seed, epoch, layer, global vertex id, feature)."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gnndist.comm import Comm
from gnndist.kernels import bias_relu_dropout, bias_relu_dropout_backward, hash_dropout
from gnndist.nn.arguments import probability
from gnndist.rankgraph import Clock


class Rows(Protocol):
    """Which vertices the rows of a tensor belong to: a `RankGraph` for what its layers take,
    ``graph.outputs`` for what they return."""

    @property
    def column_ids(self) -> int | Tensor: ...
    @property
    def num_columns(self) -> int: ...
    @property
    def comm(self) -> Comm: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def whole(self) -> bool: ...


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


class _BiasReluDropout(torch.autograd.Function):
    """dropout(relu(x + bias)) in one pass each way; the mask is read off the output."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor | None, p: float, key: int, rows: int | Tensor
    ) -> Tensor:
        out = bias_relu_dropout(x, bias, p, key, rows)
        ctx.mask = (p, key, rows)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        (out,) = ctx.saved_tensors
        p, key, rows = ctx.mask
        grad_x, grad_bias = bias_relu_dropout_backward(
            grad.contiguous(), out, p, key, rows, need_bias=ctx.needs_input_grad[1]
        )
        return grad_x, grad_bias, None, None, None


class Dropout(nn.Module):
    """Zero each element with probability p and scale the others by 1 / (1 − p).

    Called as ``dropout(graph, h)`` with h [n_in, F], rows that `graph` takes as inputs; for rows
    that it returns, ``dropout(graph.outputs, h)``. The mask does not depend on the number of
    ranks, needs no storage and no generator state.

    Raises
    ------
    ValueError
        p outside 0 … 1.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        probability(dropout=p)
        self.p = p

    def forward(self, rows: Rows, h: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return h
        out: Tensor = _HashDropout.apply(  # type: ignore[no-untyped-call]
            h.contiguous(), self.p, rows.clock.next_key(), rows.column_ids
        )
        return out

    def after_relu(self, rows: Rows, h: Tensor, bias: Tensor | None = None) -> Tensor:
        """dropout(relu(h + bias)), in one pass over memory; `bias` is [F]."""
        p = self.p if self.training else 0.0
        key = rows.clock.next_key() if p > 0 else 0
        out: Tensor = _BiasReluDropout.apply(h.contiguous(), bias, p, key, rows.column_ids)  # type: ignore[no-untyped-call]
        return out

    def extra_repr(self) -> str:
        return f"p={self.p}"
