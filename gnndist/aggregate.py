"""out = L · H + R · exchange(S · H), forward and backward, exchanging beside the local work.

`Aggregate` is the linear aggregation alone. `AggregateOfLinear` and `LinearOfAggregate` are a
whole linear layer, Â(HW) and (ÂH)W: knowing both factors they let dense work run while messages
travel. Rows that are sent come first in a rank's order, so the exchange starts after their part of
the dense product and the rest of it is done meanwhile; likewise the weight gradient.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnndist.buffers import BufferPool
from gnndist.exchange import Exchange, Transfer
from gnndist.kernels import CSR, spmm
from gnndist.operators import Operators


@dataclass(frozen=True, kw_only=True)
class Direction:
    """One direction of an aggregation: forward, or backward with everything transposed."""

    send: CSR
    exchange: Exchange
    local: CSR
    receive: CSR
    num_boundary: int
    """`send` reads only the first rows of its input …"""
    num_receiving: int
    """… and `receive` adds only into the first rows of the output"""
    buffers: BufferPool

    @property
    def alone(self) -> bool:
        """Nothing to send and nothing to receive."""
        return self.exchange.num_sent == 0 and self.exchange.num_received == 0

    def multiply(self, matrix: CSR, h: Tensor) -> Tensor:
        out = self.buffers.empty((matrix.num_rows, h.shape[1]), h.dtype, h.device)
        return spmm(matrix, h, out=out)

    def start(self, h: Tensor) -> Transfer:
        """Begin the exchange of ``send · h``; only the boundary rows of h need be computed."""
        return self.exchange.start(self.multiply(self.send, h), self.buffers)

    def apply(self, h: Tensor) -> Tensor:
        """local · h + receive · exchange(send · h)."""
        if self.alone:
            return self.multiply(self.local, h)
        transfer = self.start(h)
        out = self.multiply(self.local, h)
        return spmm(self.receive, transfer.wait(), out=out, accumulate=True)


def directions(operators: Operators, buffers: BufferPool) -> tuple[Direction, Direction]:
    """Forward and backward."""
    o = operators
    forward = Direction(
        send=o.send,
        exchange=o.exchange,
        local=o.local,
        receive=o.receive,
        num_boundary=o.num_boundary,
        num_receiving=o.num_receiving,
        buffers=buffers,
    )
    backward = Direction(
        send=o.receive_t,
        exchange=o.reverse,
        local=o.local_t,
        receive=o.send_t,
        num_boundary=o.num_receiving,
        num_receiving=o.num_boundary,
        buffers=buffers,
    )
    return forward, backward


class Aggregate(torch.autograd.Function):
    """The linear aggregation of a rank's rows.

    | | here | over all ranks |
    |---|---|---|
    | h | [n_in, F] | H |
    | forward | L h + R exchange(S h) | Â H |
    | backward | Lᵀ g + Sᵀ exchange⁻¹(Rᵀ g) | Âᵀ G |
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, operators: Operators, buffers: BufferPool) -> Tensor:
        forward, ctx.backward_direction = directions(operators, buffers)
        return forward.apply(h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.backward_direction.apply(grad.contiguous()), None, None


class AggregateOfLinear(torch.autograd.Function):
    """Â (H W): for layers that narrow.

    | | here | over all ranks |
    |---|---|---|
    | h, weight | [n_in, F_in], [F_out, F_in] | H, Wᵀ |
    | z | h Wᵀ, boundary rows first | HW |
    | forward | L z + R exchange(S z), interior of z meanwhile | Â (HW) |
    | backward | dz = Lᵀ g + Sᵀ exchange⁻¹(Rᵀ g) | Âᵀ G |
    | | dh = dz W, dW = dzᵀ h, interior's meanwhile | (ÂᵀG) Wᵀ, Hᵀ (ÂᵀG) |
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, operators: Operators, buffers: BufferPool
    ) -> Tensor:
        d, ctx.backward_direction = directions(operators, buffers)
        ctx.save_for_backward(h, weight)
        z = buffers.empty((h.shape[0], weight.shape[0]), h.dtype, h.device)
        first = d.num_boundary
        transfer = None
        if not d.alone:
            torch.mm(h[:first], weight.t(), out=z[:first])
            transfer = d.start(z)
        else:
            first = 0
        torch.mm(h[first:], weight.t(), out=z[first:])
        out = d.multiply(d.local, z)
        if transfer is not None:
            spmm(d.receive, transfer.wait(), out=out, accumulate=True)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        d: Direction = ctx.backward_direction
        h, weight = ctx.saved_tensors
        grad = grad.contiguous()
        wants_input = ctx.needs_input_grad[0]
        dh = d.buffers.like(h) if wants_input else None
        transfer = None if d.alone else d.start(grad)
        dz = d.multiply(d.local, grad)
        first = 0 if transfer is None else d.num_receiving
        dweight = dz[first:].t() @ h[first:]
        if dh is not None:
            torch.mm(dz[first:], weight, out=dh[first:])
        if transfer is not None:
            spmm(d.receive, transfer.wait(), out=dz, accumulate=True)
            dweight.addmm_(dz[:first].t(), h[:first])
            if dh is not None:
                torch.mm(dz[:first], weight, out=dh[:first])
        return dh, dweight, None, None


class LinearOfAggregate(torch.autograd.Function):
    """(Â H) W: for layers that widen. Its weight gradient needs no exchange at all.

    | | here | over all ranks |
    |---|---|---|
    | h, weight | [n_in, F_in], [F_out, F_in] | H, Wᵀ |
    | a | L h + R exchange(S h) | ÂH |
    | forward | a Wᵀ, rows that receive last | (ÂH) W |
    | backward | da = g W, rows that return first | G Wᵀ |
    | | dW = gᵀ a during the exchange | (ÂH)ᵀ G |
    | | dh = Lᵀ da + Sᵀ exchange⁻¹(Rᵀ da) | Âᵀ (G Wᵀ) |
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, operators: Operators, buffers: BufferPool
    ) -> Tensor:
        d, ctx.backward_direction = directions(operators, buffers)
        transfer = None if d.alone else d.start(h)
        a = d.multiply(d.local, h)
        out = buffers.empty((a.shape[0], weight.shape[0]), h.dtype, h.device)
        first = 0 if transfer is None else d.num_receiving
        torch.mm(a[first:], weight.t(), out=out[first:])
        if transfer is not None:
            spmm(d.receive, transfer.wait(), out=a, accumulate=True)
            torch.mm(a[:first], weight.t(), out=out[:first])
        ctx.save_for_backward(a, weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        d: Direction = ctx.backward_direction
        a, weight = ctx.saved_tensors
        grad = grad.contiguous()
        if not ctx.needs_input_grad[0]:
            return None, grad.t() @ a, None, None
        da = d.buffers.like(a)
        first = 0 if d.alone else d.num_boundary
        torch.mm(grad[:first], weight, out=da[:first])
        transfer = None if d.alone else d.start(da)
        torch.mm(grad[first:], weight, out=da[first:])
        dweight = grad.t() @ a
        dh = d.multiply(d.local, da)
        if transfer is not None:
            spmm(d.receive, transfer.wait(), out=dh, accumulate=True)
        return dh, dweight, None, None


class Linear(torch.autograd.Function):
    """h Wᵀ, its large results in buffers used again. h [n, F_in], weight [F_out, F_in]."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, buffers: BufferPool) -> Tensor:
        ctx.save_for_backward(h, weight)
        ctx.buffers = buffers
        out = buffers.empty((h.shape[0], weight.shape[0]), h.dtype, h.device)
        return torch.mm(h, weight.t(), out=out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        h, weight = ctx.saved_tensors
        dh = dweight = None
        if ctx.needs_input_grad[0]:
            dh = torch.mm(grad, weight, out=ctx.buffers.like(h))
        if ctx.needs_input_grad[1]:
            dweight = grad.t() @ h
        return dh, dweight, None
