"""out = L · H + R · exchange(S · H), forward and backward, exchanging beside the local product."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnndist.exchange import Exchange
from gnndist.kernels import CSR, spmm
from gnndist.operators import Operators


def apply(h: Tensor, send: CSR, exchange: Exchange, local: CSR, receive: CSR) -> Tensor:
    """local · h + receive · exchange(send · h); `h` is [n_in, F], the result [n_out, F].

    The backward pass is the same call with each matrix transposed, send and receive swapped and
    the exchange reversed.
    """
    if exchange.num_sent == 0 and exchange.num_received == 0:
        return spmm(local, h)
    transfer = exchange.start(spmm(send, h))
    out = spmm(local, h)
    return spmm(receive, transfer.wait(), out=out, accumulate=True)


class Aggregate(torch.autograd.Function):
    """The linear aggregation of a rank's rows.

    | | here | over all ranks |
    |---|---|---|
    | h | [n_in, F] | H |
    | forward | L h + R exchange(S h) | Â H |
    | backward | Lᵀ g + Sᵀ exchange⁻¹(Rᵀ g) | Âᵀ G |
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, operators: Operators) -> Tensor:
        ctx.operators = operators
        o = operators
        return apply(h, o.send, o.exchange, o.local, o.receive)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        o: Operators = ctx.operators
        grad = grad.contiguous()
        return apply(grad, o.receive_t, o.reverse, o.local_t, o.send_t), None


class Gather(torch.autograd.Function):
    """Owned rows followed by halo rows.

    | | here |
    |---|---|
    | h | [n_in, F] owned |
    | forward | [h; exchange(S h)], [n_in + halo, F] |
    | backward | g_owned + Sᵀ exchange⁻¹(g_halo) |
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, operators: Operators) -> Tensor:
        ctx.operators = operators
        transfer = operators.exchange.start(spmm(operators.send, h))
        return torch.cat([h, transfer.wait()])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        o: Operators = ctx.operators
        owned, halo = grad.split([o.local.num_cols, o.exchange.num_received])
        transfer = o.reverse.start(halo.contiguous())
        total = owned.clone()
        return spmm(o.send_t, transfer.wait(), out=total, accumulate=True), None
