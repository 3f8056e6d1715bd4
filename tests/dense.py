"""Dense float64 references that know nothing of stores, plans or ranks."""

import numpy as np
import torch
from torch import Tensor

from gnndist.kernels import dropout_key, hash_dropout


def adjacency(graph: "object") -> Tensor:
    """[N, N] float64: entry (i, j) is the weight of the edge from j to i."""
    n = len(graph.indptr) - 1
    dense = torch.zeros(n, n, dtype=torch.float64)
    weight = graph.edge_weight
    for i in range(n):
        for k in range(graph.indptr[i], graph.indptr[i + 1]):
            dense[i, int(graph.indices[k])] = 1.0 if weight is None else float(weight[k])
    return dense


def gcn_norm(a: Tensor) -> Tensor:
    """D^-½ (A + missing loops) D^-½."""
    missing = (a.diagonal() == 0).double()
    a = a + torch.diag(missing)
    degree = a.sum(1)
    root = torch.where(degree == 0, 0.0, degree.pow(-0.5))
    return root[:, None] * a * root[None, :]


def masks(
    seed: int, epoch: int, layer: int, p: float, global_ids: np.ndarray, width: int
) -> Tensor:
    """[N, width] by original id: 0 or 1 / (1 − p)."""
    ones = torch.ones(len(global_ids), width, dtype=torch.float64)
    if p == 0:
        return ones
    return hash_dropout(ones, p, dropout_key(seed, epoch, layer), torch.from_numpy(global_ids))
