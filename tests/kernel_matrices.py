"""Matrices for the tests of kernels: hubs, empty rows and columns, and their dense form."""

import numpy as np
import torch
from torch import Tensor

from gnndist.kernels import CSR

FLOATS = (torch.float32, torch.float64)
TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-11}
"""absolute, for sums of up to 150 products of normal numbers"""


def csr(dense: Tensor, weighted: bool = True) -> CSR:
    """The nonzeros of a matrix, row by row."""
    rows, columns = dense.nonzero(as_tuple=True)
    degrees = torch.bincount(rows, minlength=dense.shape[0])
    return CSR(
        indptr=torch.cat([degrees.new_zeros(1), degrees.cumsum(0)]),
        indices=columns.to(torch.int32),
        values=dense[rows, columns] if weighted else None,
        num_cols=dense.shape[1],
    )


def random_dense(
    rows: int, cols: int, seed: int, density: float = 0.15, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Normal nonzeros; where there are two rows, row 0 is full (a hub) and row 1 empty."""
    generator = np.random.default_rng(seed)
    kept = generator.random((rows, cols)) < density
    if rows > 1:
        kept[0], kept[1] = True, False
    return torch.from_numpy(np.where(kept, generator.normal(size=(rows, cols)), 0.0)).to(dtype)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers."""
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).to(dtype)


def strided(values: Tensor, left: int = 1, right: int = 2) -> Tensor:
    """The same rows as a view into a wider matrix of NaN."""
    wide = values.new_full((values.shape[0], left + values.shape[1] + right), torch.nan)
    view = wide[:, left : left + values.shape[1]]
    view.copy_(values)
    return view
