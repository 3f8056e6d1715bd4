"""Dropout whose mask is a function of (seed, epoch, layer, global vertex id, feature)."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gnndist.buffers import BufferPool
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
    @property
    def buffers(self) -> BufferPool: ...


class _HashDropout(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, p: float, key: int, rows: int | Tensor, buffers: BufferPool
    ) -> Tensor:
        ctx.mask = (p, key, rows, buffers)
        return hash_dropout(x, p, key, rows, out=buffers.like(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        # The derivative is the mask itself, drawn again instead of stored.
        p, key, rows, buffers = ctx.mask
        grad_x = hash_dropout(grad.contiguous(), p, key, rows, out=buffers.like(grad))
        return grad_x, None, None, None, None


class _BiasReluDropout(torch.autograd.Function):
    """dropout(relu(x + bias)) in one pass each way; the mask is read off the output."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        bias: Tensor | None,
        p: float,
        key: int,
        rows: int | Tensor,
        buffers: BufferPool,
        in_place: bool,
        overwrite_gradient: bool,
    ) -> Tensor:
        out = bias_relu_dropout(x, bias, p, key, rows, out=x if in_place else buffers.like(x))
        if in_place:
            ctx.mark_dirty(x)
        ctx.mask = (p, key, rows)
        ctx.buffers = None if overwrite_gradient else buffers
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (out,) = ctx.saved_tensors
        p, key, rows = ctx.mask
        grad = grad.contiguous()
        grad_x, grad_bias = bias_relu_dropout_backward(
            grad,
            out,
            p,
            key,
            rows,
            need_bias=ctx.needs_input_grad[1],
            grad_x=grad if ctx.buffers is None else ctx.buffers.like(out),
        )
        return grad_x, grad_bias, None, None, None, None, None, None


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
            h.contiguous(), self.p, rows.clock.next_key(), rows.column_ids, rows.buffers
        )
        return out

    def after_relu(
        self,
        rows: Rows,
        h: Tensor,
        bias: Tensor | None = None,
        *,
        in_place: bool = False,
        overwrite_gradient: bool = False,
    ) -> Tensor:
        """dropout(relu(h + bias)), in one pass over memory; `bias` is [F].

        `in_place` is for an h that nothing else reads, not even the backward pass of what made it.
        `overwrite_gradient` is for a result that one layer alone reads, whose gradient for it is a
        tensor of its own, as all layers' here are.
        """
        p = self.p if self.training else 0.0
        key = rows.clock.next_key() if p > 0 else 0
        out: Tensor = _BiasReluDropout.apply(
            h.contiguous(),
            bias,
            p,
            key,
            rows.column_ids,
            rows.buffers,
            in_place,
            overwrite_gradient,
        )  # type: ignore[no-untyped-call]
        return out

    def extra_repr(self) -> str:
        return f"p={self.p}"
