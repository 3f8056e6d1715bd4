"""Attention over in-neighbours in two parts: owned ones while the halo's rows travel, then those.

Each side gives sums relative to its own largest score (a running-max softmax, Milakov and
Gimelshein 2018); `combine` puts them on a common scale. The result is the softmax over all
in-neighbours, wherever they are.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnndist.kernels import CSR, edge_hash_mask, spmm
from gnndist.neighbours import Neighbours


class EdgeDropout(NamedTuple):
    """Dropout of single edges' attention, a function of both ends' global ids and the head."""

    p: float
    key: int

    def factors(self, edges: Neighbours, heads: int, dtype: torch.dtype) -> Tensor:
        """[E, heads] 0 or 1 / (1 − p)."""
        destinations, sources = edges.destinations[edges.row], edges.sources[edges.column]
        kept = edge_hash_mask(self.p, self.key, destinations, sources, heads)
        return kept.to(dtype) * (1 / (1 - self.p) if self.p < 1 else 0.0)


class Side(NamedTuple):
    """What the neighbours of one side contribute to n rows."""

    total: Tensor
    """[n, heads, C] Σ_j exp(e_ij − peak_i) v_j, dropped edges left out"""
    weight: Tensor
    """[n, heads] Σ_j exp(e_ij − peak_i)"""
    peak: Tensor
    """[n, heads] max_j e_ij, −∞ without neighbours; no gradient"""


def attend(scores: Tensor, values: Tensor, edges: Neighbours, dropout: EdgeDropout | None) -> Side:
    """One side's sums. scores [E, heads] a score an edge; values [s, heads, C] of its sources."""
    heads = scores.shape[1]
    keep = None if dropout is None else dropout.factors(edges, heads, scores.dtype)
    flat = values.flatten(1)
    total, weight, peak = _Attend.apply(scores, flat, edges, keep)  # type: ignore[no-untyped-call]
    return Side(total.view(len(total), *values.shape[1:]), weight, peak)


def combine(sides: Sequence[Side]) -> Tensor:
    """softmax_j(e_ij) v_j summed over the neighbours of all sides, [n, heads, C]; 0 without any."""
    if len(sides) == 1:
        total, weight, _ = sides[0]
    else:
        peak = torch.stack([side.peak for side in sides]).amax(dim=0)
        peak = peak.masked_fill(peak == -torch.inf, 0.0)
        scales = [(side.peak - peak).exp() for side in sides]
        pairs = list(zip(sides, scales, strict=True))
        total = torch.stack([side.total * scale[..., None] for side, scale in pairs]).sum(dim=0)
        weight = torch.stack([side.weight * scale for side, scale in pairs]).sum(dim=0)
    return total / weight.masked_fill(weight == 0, 1.0)[..., None]


class _Attend(torch.autograd.Function):
    """Exponentials of scores, and values summed with them.

    | | here |
    |---|---|
    | scores, values | e [E, H], v [s, H·C] |
    | forward | p = exp(e − peak), weight = Σ p, total = Σ keep p v |
    | backward | dv_j = Σ_i keep p G_i, de = p (keep ⟨G_i, v_j⟩ + g_i) |
    """

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, values: Tensor, edges: Neighbours, keep: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        degree = edges.csr.indptr.diff()
        peak = torch.segment_reduce(scores, "max", lengths=degree, axis=0, unsafe=True)
        p = (scores - peak[edges.row]).exp_()
        weight = torch.zeros_like(peak).index_add_(0, edges.row, p)
        total = _weighted(edges.csr, p if keep is None else p * keep, values)
        ctx.edges = edges
        ctx.save_for_backward(values, p, keep)
        ctx.mark_non_differentiable(peak)
        return total, weight, peak

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_total: Tensor, grad_weight: Tensor, _: Tensor
    ) -> tuple[Tensor, Tensor, None, None]:
        values, p, keep = ctx.saved_tensors
        edges: Neighbours = ctx.edges
        grad_total = grad_total.contiguous()
        transposed, order = edges.csr.transpose_positions()
        kept = p if keep is None else p * keep
        grad_values = _weighted(transposed, kept[order], grad_total)
        products = grad_total[edges.row] * values[edges.column]
        heads = p.shape[1]
        grad_p = products.view(len(p), heads, values.shape[1] // heads).sum(-1)
        if keep is not None:
            grad_p = grad_p * keep
        return p * (grad_p + grad_weight[edges.row]), grad_values, None, None


def _weighted(pattern: CSR, weights: Tensor, values: Tensor) -> Tensor:
    """Σ_j weights_ij,h values_j,h for each head h: weights [E, H], values [s, H·C]."""
    heads = weights.shape[1]
    out = values.new_empty(pattern.num_rows, values.shape[1])
    for head, (source, target) in enumerate(
        zip(values.chunk(heads, dim=1), out.chunk(heads, dim=1), strict=True)
    ):
        matrix = CSR(
            indptr=pattern.indptr,
            indices=pattern.indices,
            values=weights[:, head].contiguous(),
            num_cols=pattern.num_cols,
        )
        spmm(matrix, source, out=target)
    return out
