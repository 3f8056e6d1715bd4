"""Attention over in-neighbours in two parts: owned ones while the halo's rows travel, then those.

Both go into one running softmax (Milakov and Gimelshein 2018), so the result is the softmax over
all in-neighbours, wherever they are. Each part is an autograd node of its own: backward, the halo's
gradients come first and leave while those of owned neighbours are computed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnndist.kernels import CSR, AttentionState, EdgeDropout, attention_delta
from gnndist.neighbours import Neighbours


class Kernels(NamedTuple):
    """A kind of attention: how neighbours are taken in, and the gradients of the three inputs.

    The first input, [sources, heads, D], is what is summed.
    """

    forward: Callable[..., AttentionState]
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]]


class Attention:
    """One pass of attention: `take_in` each side's neighbours, then `result`.

    Parameters
    ----------
    kernels:
        the kind.
    slope:
        LeakyReLU's.
    dropout:
        (p, key) of single edges, a function of both ends' global ids and the head; or None.
    """

    def __init__(self, kernels: Kernels, slope: float, dropout: tuple[float, int] | None) -> None:
        self._kernels, self._slope, self._dropout = kernels, slope, dropout
        self._pass = _Pass()
        self._taken: Tensor | None = None

    def take_in(self, edges: Neighbours, *inputs: Tensor) -> None:
        """Take in one side's neighbours."""
        dropout = None
        if self._dropout is not None:
            p, key = self._dropout
            dropout = EdgeDropout(
                p=p, key=key, destinations=edges.destinations, sources=edges.sources
            )
        side = _Side(edges.csr, self._kernels, self._slope, dropout)
        self._taken = _TakeIn.apply(self._taken, *inputs, side, self._pass)  # type: ignore[no-untyped-call]

    def result(self) -> Tensor:
        """Σ_j softmax_j(score_ij) x_j over all neighbours, [n, heads, D]; 0 without any."""
        out: Tensor = _Finish.apply(self._taken, self._pass)  # type: ignore[no-untyped-call]
        return out


@dataclass(eq=False)
class _Pass:
    """What the nodes of one pass share besides gradients; it holds no node."""

    state: AttentionState | None = None
    shift: Tensor | None = None
    delta: Tensor | None = None


@dataclass(frozen=True, eq=False)
class _Side:
    csr: CSR
    kernels: Kernels
    slope: float
    dropout: EdgeDropout | None


class _TakeIn(torch.autograd.Function):
    """Returns a tensor without memory that makes the next node come after this one."""

    @staticmethod
    def forward(
        ctx: Any, taken: Tensor | None, a: Tensor, b: Tensor, c: Tensor, side: _Side, run: _Pass
    ) -> Tensor:
        run.state = side.kernels.forward(
            side.csr, a, b, c, slope=side.slope, dropout=side.dropout, state=run.state
        )
        ctx.side, ctx.run, ctx.first = side, run, taken is None
        ctx.save_for_backward(a, b, c)
        return a.new_empty(1).expand(run.state.out.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        side, run = ctx.side, ctx.run
        grads = side.kernels.backward(
            side.csr,
            grad,
            *ctx.saved_tensors,
            run.shift,
            run.delta,
            slope=side.slope,
            dropout=side.dropout,
        )
        return None if ctx.first else grad, *grads, None, None


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, taken: Tensor, run: _Pass) -> Tensor:
        assert run.state is not None
        run.shift = run.state.shift()
        out = run.state.finish()
        run.state = None
        ctx.run = run
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        grad = grad.contiguous()
        ctx.run.delta = attention_delta(grad, out)
        return grad, None
