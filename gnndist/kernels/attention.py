"""Attention over neighbours, without ever holding an array of edges × features.

Scores, weights and weighted sums are formed a tile of neighbours at a time, as a running-max
softmax (Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018): so one matrix
(owned neighbours) can be taken in while the columns of another (the halo) still travel. Backward,
weights are computed again from the scores and one number a row and head.

This module holds what GAT (`gnndist.kernels.gat`) and GATv2 (`gnndist.kernels.gatv2`) share.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnndist.kernels.csr import CSR
from gnndist.kernels.hashing import edge_hash_mask, global_ids, threshold


@dataclass(frozen=True, kw_only=True)
class EdgeDropout:
    """Dropout of edges' attention, a function of the key, both ends' global ids and the head."""

    p: float
    """probability of dropping, below 1; what is kept is divided by 1 - p"""
    key: int
    """from `dropout_key`"""
    destinations: int | Tensor
    """global ids of the rows: the first of a run, or int64 [rows]"""
    sources: int | Tensor
    """global ids of the columns: the first of a run, or int64 [cols]"""

    def factors(self, csr: CSR, heads: int, dtype: torch.dtype) -> Tensor:
        """[nnz, heads] 0 or 1 / (1 - p)."""
        destinations = global_ids(self.destinations, csr.num_rows, csr.device)[csr.row_ids()]
        sources = global_ids(self.sources, csr.num_cols, csr.device)[csr.indices.long()]
        mask = edge_hash_mask(self.p, self.key, destinations, sources, heads)
        return mask.to(dtype) * (1.0 / (1.0 - self.p))


@dataclass(frozen=True, kw_only=True)
class AttentionState:
    """Sums over the neighbours taken in so far, relative to each row's largest score."""

    highest: Tensor
    """[rows, heads] the largest score; -inf without neighbours"""
    total: Tensor
    """[rows, heads] Σ_j exp(score_ij - highest_i)"""
    out: Tensor
    """[rows, heads, D] Σ_j exp(score_ij - highest_i) x_j, dropped edges left out"""

    def finish(self) -> Tensor:
        """The softmax-weighted sums [rows, heads, D], 0 without neighbours: `out`, divided in
        place by `total`. Call it once, after the last matrix."""
        return self.out.div_(self.total.masked_fill(self.total == 0, 1.0)[..., None])

    def shift(self) -> Tensor:
        """[rows, heads]: exp(score_ij - shift_i) is the softmax weight; what backward needs."""
        return torch.where(self.total > 0, self.highest + self.total.log(), 0.0)


def attention_delta(grad: Tensor, out: Tensor) -> Tensor:
    """[rows, heads] Σ_d grad · out, the softmax's part of the backward pass, from the gradient of
    the finished output and that output, [rows, heads, D] both."""
    delta: Tensor = torch.linalg.vecdot(grad, out)
    return delta


def empty_state(rows: int, x: Tensor, out: Tensor | None = None) -> AttentionState:
    """A state to be written by a first call, for x [cols, heads, D]; `out` is memory for it."""
    heads, width = x.shape[1:]
    return AttentionState(
        highest=x.new_empty(rows, heads),
        total=x.new_empty(rows, heads),
        out=x.new_empty(rows, heads, width) if out is None else out,
    )


NO_IDS = np.empty(0, np.int64)


def dropout_arguments(dropout: EdgeDropout | None, csr: CSR) -> tuple[Any, ...]:
    """What kernels take: destinations' ids and start, sources' likewise, key, threshold, scale."""
    if dropout is None or dropout.p == 0.0:
        return NO_IDS, 0, NO_IDS, 0, np.uint64(0), 0, 1.0
    if dropout.p == 1.0:
        raise ValueError("attention dropout p = 1 leaves nothing; a probability below 1 is needed")
    ends: list[Any] = []
    for ids, count in ((dropout.destinations, csr.num_rows), (dropout.sources, csr.num_cols)):
        if isinstance(ids, int):
            ends += [NO_IDS, ids]
        else:
            ends += [global_ids(ids, count, torch.device("cpu")).contiguous().numpy(), 0]
    least = threshold(dropout.p)
    return *ends, np.uint64(dropout.key), least, 1.0 / (1.0 - dropout.p)
