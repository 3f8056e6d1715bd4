"""Halo rows as they are, exchanged beside other work in both directions."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnndist.buffers import BufferPool
from gnndist.exchange import Transfer
from gnndist.kernels import CSR, spmm
from gnndist.operators import Operators


class Halo:
    """Halo rows on their way; `wait` gives them once whatever else can be done has been done.

    | | here |
    |---|---|
    | h | [n_in, F] owned |
    | forward | exchange(S h), [halo, F] |
    | backward | Sᵀ exchange⁻¹(g) |

    Differentiable, and overlapped backward as well: autograd runs last what ran first, so the
    gradients of the halo's rows leave before the backward pass of the work done between creation
    and `wait`, and are waited for after it.
    """

    def __init__(self, h: Tensor, operators: Operators, buffers: BufferPool) -> None:
        self._flight = _Flight(operators, buffers)
        self._departed: Tensor = _Depart.apply(h.contiguous(), self._flight)  # type: ignore[no-untyped-call]

    def wait(self) -> Tensor:
        """The halo rows, [halo, F] in the order of the plan's `halo`. To be called once."""
        rows: Tensor = _Arrive.apply(self._departed, self._flight)  # type: ignore[no-untyped-call]
        return rows


class _Flight:
    """What the two ends of an exchange share; it holds no tensor of the autograd graph."""

    def __init__(self, operators: Operators, buffers: BufferPool) -> None:
        self.operators = operators
        self.buffers = buffers
        self.out: Transfer | None = None
        self.back: Transfer | None = None

    def multiply(self, matrix: CSR, h: Tensor) -> Tensor:
        out = self.buffers.empty((matrix.num_rows, h.shape[1]), h.dtype, h.device)
        return spmm(matrix, h, out=out)


class _Depart(torch.autograd.Function):
    """Start the exchange. Returns an empty tensor that makes `_Arrive` come after it."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, flight: _Flight) -> Tensor:
        ctx.flight = flight
        messages = flight.multiply(flight.operators.send, h)
        flight.out = flight.operators.exchange.start(messages, flight.buffers)
        return h.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        flight: _Flight = ctx.flight
        assert flight.back is not None, "gradients return after they have been sent"
        received, flight.back = flight.back.wait(), None
        return flight.multiply(flight.operators.send_t, received), None


class _Arrive(torch.autograd.Function):
    """Wait for the exchange."""

    @staticmethod
    def forward(ctx: Any, departed: Tensor, flight: _Flight) -> Tensor:
        ctx.flight = flight
        assert flight.out is not None, "halo rows are waited for once"
        received, flight.out = flight.out.wait(), None
        return received

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        flight: _Flight = ctx.flight
        flight.back = flight.operators.reverse.start(grad.contiguous(), flight.buffers)
        return grad.new_empty(0), None
