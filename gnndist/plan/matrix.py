"""A sparse matrix as plain arrays: what plans are made of and what ranks send each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Ids = NDArray[np.signedinteger[Any]]
"""int32 or int64: a large graph's edges are kept in 32 bits"""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """CSR; no values means that every entry is 1."""

    indptr: NDArray[np.int64]
    """[num_rows + 1]"""
    indices: Ids
    """[nnz] column ids"""
    values: NDArray[np.float64] | None
    """[nnz]"""
    num_columns: int

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        return len(self.indices)

    def row_of_entry(self) -> NDArray[np.int32]:
        """[nnz] the row that each entry belongs to."""
        return np.repeat(np.arange(self.num_rows, dtype=np.int32), np.diff(self.indptr))

    def to_scipy(self) -> sp.csr_array:
        values = np.ones(self.nnz, np.int8) if self.values is None else self.values
        return sp.csr_array(
            (values, self.indices, self.indptr), (self.num_rows, self.num_columns), copy=True
        )

    def sorted(self) -> "Matrix":
        """With the columns of each row ascending."""
        matrix = self.to_scipy()
        matrix.sort_indices()
        return Matrix(
            indptr=self.indptr,
            indices=matrix.indices.astype(self.indices.dtype, copy=False),
            values=None if self.values is None else matrix.data,
            num_columns=self.num_columns,
        )

    @classmethod
    def from_entries(
        cls,
        row: Ids,
        column: Ids,
        values: NDArray[np.float64] | None,
        shape: tuple[int, int],
    ) -> "Matrix":
        """From coordinates in any order; within a row the entries keep the order given."""
        order = np.argsort(row, kind="stable")
        counts = np.bincount(row, minlength=shape[0])
        return cls(
            indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            indices=column[order],
            values=None if values is None else values[order],
            num_columns=shape[1],
        )

    @classmethod
    def stacked(cls, parts: Sequence["Matrix"], num_columns: int) -> "Matrix":
        """The rows of all parts, one below the other."""
        starts = np.cumsum([0, *(part.nnz for part in parts)])
        indptr = [part.indptr[1:] + start for part, start in zip(parts, starts, strict=False)]
        weighted = any(part.values is not None for part in parts)
        values = [np.ones(p.nnz) if p.values is None else p.values for p in parts]
        return cls(
            indptr=np.concatenate([np.zeros(1, np.int64), *indptr]),
            indices=np.concatenate([np.zeros(0, np.int32), *(part.indices for part in parts)]),
            values=np.concatenate(values) if weighted else None,
            num_columns=num_columns,
        )
