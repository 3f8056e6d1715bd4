"""A sparse matrix by compressed rows, in torch tensors."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import types
from torch import Tensor

from gnndist.kernels.compiling import Kernel
from gnndist.kernels.threads import chunk_count

INT32_MAX = 2**31 - 1
WORK_PER_ROW = 4
"""What a row costs beside its nonzeros, in nonzeros: cutting rows into chunks of equal work."""

CACHE = 8 << 20
"""Bytes of x that stay cached from one use to the next, about: a thread's share of a last level."""

PASS_DEGREE = 4
"""Nonzeros of a row in each of several passes, at least: a pass reads and writes the output."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CSR:
    """A sparse matrix: row i holds columns indices[indptr[i] : indptr[i + 1]].

    Raises ValueError where the arrays do not make a matrix.
    """

    indptr: Tensor
    """int64 [rows + 1], from 0 to nnz, never falling."""
    indices: Tensor
    """int32 or int64 [nnz], each in 0 … num_cols - 1. Kernels use 32 bits."""
    values: Tensor | None = None
    """float32 or float64 [nnz]; None: every nonzero is 1."""
    num_cols: int
    """Number of columns."""
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.indptr.dtype != torch.int64 or self.indptr.dim() != 1 or not len(self.indptr):
            raise ValueError(
                f"indptr: {self.indptr.dtype} {tuple(self.indptr.shape)}; int64 [rows + 1] needed"
            )
        if self.indices.dtype not in (torch.int32, torch.int64) or self.indices.dim() != 1:
            raise ValueError(
                f"indices: {self.indices.dtype} {tuple(self.indices.shape)}; "
                "int32 or int64 [nnz] needed"
            )
        nnz = len(self.indices)
        ends = int(self.indptr[0]), int(self.indptr[-1])
        if ends != (0, nnz) or bool((self.indptr[1:] < self.indptr[:-1]).any()):
            raise ValueError(
                f"indptr runs from {ends[0]} to {ends[1]}; it must rise from 0 to nnz = {nnz}"
            )
        if nnz:
            least, most = (int(end) for end in torch.aminmax(self.indices))
            if least < 0 or most >= self.num_cols:
                raise ValueError(
                    f"indices lie in {least} … {most}; 0 … {self.num_cols - 1} is allowed"
                )
        if self.num_cols < 0:
            raise ValueError(f"num_cols = {self.num_cols}; at least 0 is needed")
        if self.values is not None and (
            self.values.shape != self.indices.shape
            or self.values.dtype not in (torch.float32, torch.float64)
        ):
            raise ValueError(
                f"values: {self.values.dtype} {tuple(self.values.shape)}; "
                f"float32 or float64 [{nnz}] needed"
            )

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return len(self.indices)

    @property
    def device(self) -> torch.device:
        """Where the arrays lie."""
        return self.indices.device

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> "CSR":
        """The matrix with values of another type, or elsewhere; itself where nothing changes."""
        values = None if self.values is None else self.values.to(device=device, dtype=dtype)
        indptr, indices = self.indptr.to(device=device), self.indices.to(device=device)
        if values is self.values and indices is self.indices and indptr is self.indptr:
            return self
        return CSR(indptr=indptr, indices=indices, values=values, num_cols=self.num_cols)

    def equals(self, other: "CSR") -> bool:
        """Whether both hold the same numbers in the same places, in the same order."""
        if self.num_cols != other.num_cols or (self.values is None) != (other.values is None):
            return False
        return (
            torch.equal(self.indptr, other.indptr)
            and torch.equal(self.indices, other.indices)
            and (
                self.values is None
                or other.values is None
                or torch.equal(self.values, other.values)
            )
        )

    def sharing(self, other: "CSR") -> "CSR":
        """This matrix with the arrays of `other` in place of equal ones; `other` where all are."""
        if self.equals(other):
            return other
        indptr, indices = (
            theirs if torch.equal(own, theirs) else own
            for own, theirs in ((self.indptr, other.indptr), (self.indices, other.indices))
        )
        return CSR(indptr=indptr, indices=indices, values=self.values, num_cols=self.num_cols)

    def transpose(self) -> "CSR":
        """The transposed matrix, rows in rising order inside each row; made once and kept."""
        return self.transpose_positions()[0]

    def transposed(self) -> "CSR":
        """As `transpose`, for whoever keeps the result: nothing is kept here."""
        return _transpose(self)[0]

    def transpose_positions(self) -> tuple["CSR", Tensor]:
        """The transposed matrix and, int64 [nnz], where each of its entries stands in this one."""
        if "transpose" not in self._cache:
            self._cache["transpose"] = _transpose(self)
        transposed: tuple[CSR, Tensor] = self._cache["transpose"]
        return transposed

    def row_ids(self) -> Tensor:
        """int64 [nnz]: the row of each entry; made once and kept."""
        if "row_ids" not in self._cache:
            rows = torch.arange(self.num_rows, device=self.device)
            degrees = self.indptr.diff()
            self._cache["row_ids"] = rows.repeat_interleave(degrees, output_size=self.nnz)
        row_ids: Tensor = self._cache["row_ids"]
        return row_ids

    def arrays(self) -> tuple[Any, Any, Any]:
        """indptr, int32 indices and values (or None) as numpy arrays for the kernels."""
        if "arrays" not in self._cache:
            if self.num_cols > INT32_MAX:
                raise ValueError(f"num_cols = {self.num_cols}; kernels take up to {INT32_MAX}")
            self._cache["arrays"] = (
                self.indptr.contiguous().numpy(),
                self.indices.to(torch.int32).contiguous().numpy(),
                None if self.values is None else self.values.detach().contiguous().numpy(),
            )
        arrays: tuple[Any, Any, Any] = self._cache["arrays"]
        return arrays

    def passes(self, row_bytes: int) -> list[tuple[Any, Any]]:
        """Runs of columns to multiply with one after the other, where rows of x have `row_bytes`.

        Each is (starts, stops), int64 [rows]: the entries of each row that fall into the run. More
        than one where entries have so little locality that x's rows would be fetched from memory
        again and again, and a run of them fits the cache. Entries keep their order.
        """
        key = ("passes", row_bytes)
        if key not in self._cache:
            count = self._pass_count(row_bytes)
            self._cache.setdefault(("cuts", count), _cuts(self, count))
            self._cache[key] = count
        cuts = self._cache["cuts", self._cache[key]]
        return list(pairwise(cuts))

    def _pass_count(self, row_bytes: int) -> int:
        size = self.num_cols * row_bytes
        most = round(self.nnz / max(self.num_rows, 1) / PASS_DEGREE)
        count = min(-(-size // CACHE), most)
        if count < 2:
            return 1
        indptr, indices, _ = self.arrays()
        fetched = count_fetches("")(indices, CACHE // row_bytes, np.full(self.num_cols, -1))
        spared = fetched - self.num_cols  # rows of x, fetched more than once
        spent = (count - 1) * self.num_rows  # rows of the output, read and written once more
        return count if spared > 1.5 * spent and is_sorted("")(indptr, indices) else 1

    def chunks(self, width: int) -> list[int]:
        """Bounds of runs of rows of equal work, as many as threads can use at `width` features."""
        count = chunk_count((self.nnz + WORK_PER_ROW * self.num_rows) * max(width, 1))
        if count not in self._cache:
            work = self.arrays()[0] + WORK_PER_ROW * np.arange(self.num_rows + 1)
            targets = work[-1] * np.arange(1, count) // count
            inner = np.searchsorted(work, targets)
            self._cache[count] = [0, *inner.tolist(), self.num_rows]
        bounds: list[int] = self._cache[count]
        return bounds


def _count_columns(indices: Any, counts: Any) -> None:
    for column in indices:
        counts[column + 1] += 1


def _place(indptr: Any, indices: Any, start: Any, rows: Any, positions: Any) -> None:
    """Counting sort by column: rows are met in rising order, so it is stable."""
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            slot = start[indices[entry]]
            start[indices[entry]] = slot + 1
            rows[slot] = row
            positions[slot] = entry


def _count_fetches(indices: Any, capacity: Any, stamps: Any) -> Any:
    """How many rows of x come from memory, by a cache that is emptied whenever it is full."""
    fetched, held, stamp = 0, 0, 0
    for column in indices:
        if stamps[column] != stamp:
            if held == capacity:
                stamp, held = stamp + 1, 0
            stamps[column] = stamp
            held += 1
            fetched += 1
    return fetched


def _is_sorted(indptr: Any, indices: Any) -> Any:
    """Whether columns rise inside every row."""
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row] + 1, indptr[row + 1]):
            if indices[entry - 1] > indices[entry]:
                return False
    return True


def _cut(indptr: Any, indices: Any, cuts: Any, num_cols: Any) -> None:
    """cuts [passes + 1, rows]: where each run of columns begins in each row."""
    passes = cuts.shape[0] - 1
    for row in range(len(indptr) - 1):
        entry = indptr[row]
        for number in range(passes):
            bound = num_cols * number // passes
            while entry < indptr[row + 1] and indices[entry] < bound:
                entry += 1
            cuts[number, row] = entry
        cuts[passes, row] = indptr[row + 1]


_I32, _I64 = types.int32[::1], types.int64[::1]
count_columns = Kernel(_count_columns, {"": types.void(_I32, _I64)})
count_fetches = Kernel(_count_fetches, {"": types.int64(_I32, types.int64, _I64)})
is_sorted = Kernel(_is_sorted, {"": types.boolean(_I64, _I32)})
cut = Kernel(_cut, {"": types.void(_I64, _I32, types.int64[:, ::1], types.int64)})
place = Kernel(_place, {"": types.void(_I64, _I32, _I64, _I32, _I64)})


def _cuts(matrix: CSR, passes: int) -> Any:
    indptr, indices, _ = matrix.arrays()
    if passes == 1:
        return indptr[:-1], indptr[1:]
    cuts = np.empty((passes + 1, matrix.num_rows), np.int64)
    cut("")(indptr, indices, cuts, matrix.num_cols)
    return tuple(cuts)


def _transpose(matrix: CSR) -> tuple[CSR, Tensor]:
    if matrix.device.type != "cpu" or max(matrix.num_rows, matrix.num_cols) > INT32_MAX:
        return _transpose_by_sorting(matrix)
    indptr, indices, _ = matrix.arrays()
    counts = np.zeros(matrix.num_cols + 1, np.int64)
    count_columns("")(indices, counts)
    transposed_indptr = np.cumsum(counts)
    rows = np.empty(matrix.nnz, np.int32)
    positions = np.empty(matrix.nnz, np.int64)
    place("")(indptr, indices, transposed_indptr[:-1].copy(), rows, positions)
    order = torch.from_numpy(positions)
    transposed = CSR(
        indptr=torch.from_numpy(transposed_indptr),
        indices=torch.from_numpy(rows).to(matrix.indices.dtype),
        values=None if matrix.values is None else matrix.values[order],
        num_cols=matrix.num_rows,
    )
    return transposed, order


def _transpose_by_sorting(matrix: CSR) -> tuple[CSR, Tensor]:
    order = torch.argsort(matrix.indices, stable=True)
    counts = torch.bincount(matrix.indices, minlength=matrix.num_cols)
    transposed = CSR(
        indptr=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        indices=matrix.row_ids()[order].to(matrix.indices.dtype),
        values=None if matrix.values is None else matrix.values[order],
        num_cols=matrix.num_rows,
    )
    return transposed, order
