"""out = L · H + R · exchange(S · H), forward and backward, exchanging beside the local work.

`Aggregate` is the linear aggregation alone. `AggregateOfLinear` and `LinearOfAggregate` are a
whole linear layer, Â(HW) and (ÂH)W: knowing both factors they let dense work run while messages
travel. Rows that are sent come first in a rank's order, so the exchange starts after their part of
the dense product and the rest of it is done meanwhile; likewise the weight gradient.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnndist.buffers import BufferPool
from gnndist.exchange import Exchange, Transfer
from gnndist.kernels import CSR, spmm
from gnndist.operators import Operators

BLOCK_ROWS = 4096
"""of scattered rows that are copied at a time"""


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
    """Â (H W) + H V: for layers that narrow. The root term H V is optional.

    With `overwrite_gradient` dh may take the memory of g.

    | | here | over all ranks |
    |---|---|---|
    | h | [n_in, F_in] | H |
    | weight, root | [F_out, F_in] each | Wᵀ, Vᵀ |
    | z | h Wᵀ, boundary rows first | HW |
    | forward | own(h) V + L z + R exchange(S z), all but S z's rows meanwhile | Â(HW) + HV |
    | backward | dz = Lᵀ g + Sᵀ exchange⁻¹(Rᵀ g) | Âᵀ G |
    | | dh = dz W + g V, dW = dzᵀ h, interior's meanwhile | (ÂᵀG) Wᵀ + G Vᵀ, Hᵀ (ÂᵀG) |
    | | dV = gᵀ own(h), meanwhile | Hᵀ G |
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        root: Tensor | None,
        operators: Operators,
        buffers: BufferPool,
        overwrite_gradient: bool,
    ) -> Tensor:
        ctx.overwrite_gradient = overwrite_gradient
        d, ctx.backward_direction = directions(operators, buffers)
        ctx.row_at = operators.row_at
        ctx.save_for_backward(h, weight, root)
        z = buffers.empty((h.shape[0], weight.shape[0]), h.dtype, h.device)
        first = 0 if d.alone else d.num_boundary
        torch.mm(h[:first], weight.t(), out=z[:first])
        transfer = None if d.alone else d.start(z)
        torch.mm(h[first:], weight.t(), out=z[first:])
        out = d.multiply(d.local, z)
        if root is not None:
            add_root(out, h, root, ctx.row_at)
        if transfer is not None:
            spmm(d.receive, transfer.wait(), out=out, accumulate=True)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d: Direction = ctx.backward_direction
        h, weight, root = ctx.saved_tensors
        grad = grad.contiguous()
        transfer = None if d.alone else d.start(grad)
        dz = d.multiply(d.local, grad)
        first = 0 if transfer is None else d.num_receiving
        dweight = dz[first:].t() @ h[first:]
        dh: Tensor | None = None
        if ctx.needs_input_grad[0]:
            reused = ctx.overwrite_gradient and root is None and grad.shape == h.shape
            dh = grad if reused else d.buffers.like(h)
            torch.mm(dz[first:], weight, out=dh[first:])
        droot = None if root is None else root_gradient(grad, h, ctx.row_at)
        if transfer is not None:
            spmm(d.receive, transfer.wait(), out=dz, accumulate=True)
            dweight.addmm_(dz[:first].t(), h[:first])
            if dh is not None:
                torch.mm(dz[:first], weight, out=dh[:first])
        if dh is not None and root is not None:
            add_root_input_gradient(dh, grad, root, ctx.row_at)
        return dh, dweight, droot, None, None, None


class LinearOfAggregate(torch.autograd.Function):
    """(Â H) W + H V: for layers that widen. Its weight gradients need no exchange at all.

    | | here | over all ranks |
    |---|---|---|
    | h | [n_in, F_in] | H |
    | weight, root | [F_out, F_in] each | Wᵀ, Vᵀ |
    | a | L h + R exchange(S h) | ÂH |
    | forward | a Wᵀ + own(h) Vᵀ, rows that receive last | (ÂH)W + HV |
    | backward | da = g W, rows that return first | G Wᵀ |
    | | dW = gᵀ a, dV = gᵀ own(h) during the exchange | (ÂH)ᵀ G, Hᵀ G |
    | | dh = Lᵀ da + Sᵀ exchange⁻¹(Rᵀ da) + g V | Âᵀ (G Wᵀ) + G Vᵀ |
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        root: Tensor | None,
        operators: Operators,
        buffers: BufferPool,
    ) -> Tensor:
        d, ctx.backward_direction = directions(operators, buffers)
        ctx.row_at = operators.row_at
        transfer = None if d.alone else d.start(h)
        a = d.multiply(d.local, h)
        out = buffers.empty((a.shape[0], weight.shape[0]), h.dtype, h.device)
        first = 0 if transfer is None else d.num_receiving
        torch.mm(a[first:], weight.t(), out=out[first:])
        if transfer is not None:
            spmm(d.receive, transfer.wait(), out=a, accumulate=True)
            torch.mm(a[:first], weight.t(), out=out[:first])
        if root is not None:
            add_root(out, h, root, ctx.row_at)
        ctx.save_for_backward(a, weight, root, None if root is None else h)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d: Direction = ctx.backward_direction
        a, weight, root, h = ctx.saved_tensors
        grad = grad.contiguous()
        if not ctx.needs_input_grad[0]:
            droot = None if root is None else root_gradient(grad, h, ctx.row_at)
            return None, grad.t() @ a, droot, None, None
        da = d.buffers.like(a)
        first = 0 if d.alone else d.num_boundary
        torch.mm(grad[:first], weight, out=da[:first])
        transfer = None if d.alone else d.start(da)
        torch.mm(grad[first:], weight, out=da[first:])
        dweight = grad.t() @ a
        droot = None if root is None else root_gradient(grad, h, ctx.row_at)
        dh = d.multiply(d.local, da)
        if root is not None:
            add_root_input_gradient(dh, grad, root, ctx.row_at)
        if transfer is not None:
            spmm(d.receive, transfer.wait(), out=dh, accumulate=True)
        return dh, dweight, droot, None, None


class Linear(torch.autograd.Function):
    """a Wᵀ + h Vᵀ, its large results in buffers used again; the second term is optional.

    a, h [n, F_in]; W, V [F_out, F_in].
    """

    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        weight: Tensor,
        h: Tensor | None,
        root: Tensor | None,
        buffers: BufferPool,
    ) -> Tensor:
        ctx.save_for_backward(a, weight, h, root)
        ctx.buffers = buffers
        out = buffers.empty((a.shape[0], weight.shape[0]), a.dtype, a.device)
        torch.mm(a, weight.t(), out=out)
        return out if h is None or root is None else out.addmm_(h, root.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, weight, h, root = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        buffers: BufferPool = ctx.buffers
        da = torch.mm(grad, weight, out=buffers.like(a)) if wanted[0] else None
        dh = torch.mm(grad, root, out=buffers.like(h)) if wanted[2] else None
        dweight = grad.t() @ a if wanted[1] else None
        droot = grad.t() @ h if wanted[3] else None
        return da, dweight, dh, droot, None


def add_root(out: Tensor, h: Tensor, root: Tensor, row_at: Tensor | None) -> None:
    """out += own(h) Vᵀ, with own(h) the rows of h at `row_at`; None: all, in their order."""
    for own, at in _blocks(row_at, len(h)):
        out[own].addmm_(h[at], root.t())


def root_gradient(grad: Tensor, h: Tensor, row_at: Tensor | None) -> Tensor:
    """dV = gᵀ own(h)."""
    droot = grad.new_zeros(grad.shape[1], h.shape[1])
    for own, at in _blocks(row_at, len(h)):
        droot.addmm_(grad[own].t(), h[at])
    return droot


def add_root_input_gradient(dh: Tensor, grad: Tensor, root: Tensor, row_at: Tensor | None) -> None:
    """own(dh) += g V."""
    for own, at in _blocks(row_at, len(dh)):
        if isinstance(at, slice):
            dh[at].addmm_(grad[own], root)
        else:
            dh.index_copy_(0, at, dh[at].addmm_(grad[own], root))


def _blocks(row_at: Tensor | None, rows: int) -> Iterator[tuple[slice, slice | Tensor]]:
    """Output rows, and where they stand among the inputs: few at a time where they are scattered,
    so that the copy of them stays in a core's cache."""
    if row_at is None:
        yield slice(0, rows), slice(0, rows)
        return
    for first in range(0, len(row_at), BLOCK_ROWS):
        block = slice(first, min(first + BLOCK_ROWS, len(row_at)))
        yield block, row_at[block]
