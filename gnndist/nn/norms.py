"""Normalisation: over all vertices of the graph, or over the features of each."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gnndist.comm import Comm
from gnndist.kernels import column_moments, column_products, normalize_backward
from gnndist.nn.arguments import at_least
from gnndist.nn.dropout import Rows


class BatchNorm(nn.Module):
    """(x − mean) / √(var + ε) · γ + β, over all vertices on all ranks (Ioffe and Szegedy 2015).

    Called as ``norm(graph, h)``: h [n_in, F] → [n_in, F]; for rows that a convolution returned,
    ``norm(graph.outputs, h)``. In training mode, mean and variance are those of the whole graph:
    sums and counts of all ranks in one small all-reduce each way, ranks without vertices included.
    The running averages are therefore equal on all ranks. Arguments and state_dict are
    torch.nn.BatchNorm1d's; torch_geometric's BatchNorm has the same one under `module.`.

    Parameters
    ----------
    num_features:
        F.
    eps:
        added to the variance.
    momentum:
        weight of the newest statistics in the running ones; None: their plain average.
    affine:
        learn γ (ones at first) and β (zeros).
    track_running_stats:
        keep running averages and use them in evaluation mode.

    Raises
    ------
    ValueError
        a width below 1; in training, rows of only some vertices or a graph of fewer than two.
    """

    needs_every_vertex = True
    """a model with this module is not computed on active sets"""

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        at_least(1, num_features=num_features)
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine else None
        tracked = track_running_stats
        self.register_buffer("running_mean", torch.zeros(num_features) if tracked else None)
        self.register_buffer("running_var", torch.ones(num_features) if tracked else None)
        self.register_buffer("num_batches_tracked", torch.tensor(0) if tracked else None)

    def reset_parameters(self) -> None:
        """γ = 1, β = 0, and the running averages back to mean 0, variance 1."""
        if self.weight is not None and self.bias is not None:
            nn.init.ones_(self.weight)
            nn.init.zeros_(self.bias)
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def forward(self, rows: Rows, h: Tensor) -> Tensor:
        if h.dim() != 2 or h.shape[1] != self.num_features:
            raise ValueError(f"h has shape {tuple(h.shape)}: allowed is (n, {self.num_features})")
        if not self.training and self.running_mean is not None:
            return F.batch_norm(
                h, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        if not rows.whole:
            raise ValueError(
                f"h has {len(h)} rows, only some of this rank's vertices: batch norm needs all "
                "(let the model say needs_every_vertex = True)"
            )
        count, mean, variance = global_statistics(h.detach(), rows.comm)
        if count < 2:
            raise ValueError(f"a graph of {count} vertices: batch norm needs 2 and more")
        if self.training:
            self._track(count, mean, variance)
        out: Tensor = _Normalize.apply(  # type: ignore[no-untyped-call]
            h, self.weight, self.bias, mean, variance, self.eps, count, rows.comm
        )
        return out

    def _track(self, count: int, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:
            share = 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        unbiased = variance * (count / (count - 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


def global_statistics(h: Tensor, comm: Comm) -> tuple[int, Tensor, Tensor]:
    """How many rows h has on all ranks, and the mean and (biased) variance of its columns.

    h is [n, F]; both results are [F] float64, and so are the sums they come from.
    """
    width = h.shape[1]
    sums = torch.cat([column_moments(h).flatten(), h.new_full((1,), len(h), dtype=torch.float64)])
    comm.all_reduce(sums)
    first, second, total = sums.split([width, width, 1])
    mean = first / total
    return int(total), mean, (second / total - mean.square()).clamp_(min=0)


class _Normalize(torch.autograd.Function):
    """x̂ γ + β with x̂ = (x − mean) / √(var + ε), mean and variance functions of all ranks' x.

    | | here |
    |---|---|
    | x, grad | [n, F], N rows over all ranks |
    | forward | x̂ γ + β |
    | backward | γ / √(var + ε) · (g − Σg / N − x̂ Σ(g x̂) / N), sums over all ranks |
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        eps: float,
        count: int,
        comm: Comm,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, (variance + eps).rsqrt())
        ctx.count, ctx.comm = count, comm
        return F.batch_norm(x, mean.to(x.dtype), variance.to(x.dtype), weight, bias, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale = ctx.saved_tensors
        sums = column_products(grad, x, mean)
        sums[1] *= scale
        grad_bias, grad_weight = sums.to(x.dtype, copy=True) if weight is not None else (None, None)
        ctx.comm.all_reduce(sums)
        shift, slope = sums / ctx.count
        factor = scale if weight is None else scale * weight
        grad_x = normalize_backward(grad, x, mean, factor, shift, slope * scale)
        return grad_x, grad_weight, grad_bias, None, None, None, None, None


class LayerNorm(nn.LayerNorm):
    """(x − mean) / √(var + ε) · γ + β over the features of each vertex (Ba et al. 2016).

    Called as ``norm(graph, h)``: h [n, F] → [n, F]. Nothing is exchanged. Arguments and
    state_dict are torch.nn.LayerNorm's; torch_geometric's is this one with ``mode="node"``.

    Raises
    ------
    ValueError
        a width below 1.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        at_least(1, num_features=num_features)
        super().__init__(num_features, eps=eps, elementwise_affine=affine)

    def forward(self, rows: Rows, h: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(h)
