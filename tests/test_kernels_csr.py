"""CSR: what it refuses, and its transpose."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_matrices import csr, random_dense

from gnndist.kernels import CSR
from gnndist.kernels.csr import _transpose_by_sorting


def longs(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indptr": longs(0, 1)}, "rise from 0 to nnz = 2"),
        ({"indptr": longs(0, 3, 2)}, "rise from 0 to nnz = 2"),
        ({"indptr": longs(1, 2)}, "runs from 1 to 2"),
        ({"indptr": longs()}, "int64"),
        ({"indptr": torch.tensor([0.0, 2.0])}, "float32"),
        ({"indices": longs(0, 3)}, r"lie in 0 … 3; 0 … 2 is allowed"),
        ({"indices": longs(-1, 0)}, "lie in -1"),
        ({"indices": torch.tensor([0.0, 1.0])}, "float32"),
        ({"values": torch.ones(3)}, r"\(3,\)"),
        ({"values": torch.ones(2, dtype=torch.float16)}, "float16"),
        ({"num_cols": -1, "indices": longs(), "indptr": longs(0, 0)}, "-1"),
    ],
)
def test_refuses_arrays_that_make_no_matrix(change: dict[str, object], message: str) -> None:
    arrays = {"indptr": longs(0, 2), "indices": longs(0, 2), "num_cols": 3}
    with pytest.raises(ValueError, match=message):
        CSR(**{**arrays, **change})  # type: ignore[arg-type]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 99), st.booleans())
def test_transpose_is_the_dense_transpose(rows: int, cols: int, seed: int, weighted: bool) -> None:
    dense = random_dense(rows, cols, seed)
    matrix = csr(dense, weighted)
    expected = csr(dense.t().contiguous(), weighted)
    transposed, positions = matrix.transpose_positions()
    assert transposed.equals(expected)
    assert transposed is matrix.transpose()
    if weighted:
        assert torch.equal(transposed.values, matrix.values[positions])
    other, order = _transpose_by_sorting(matrix)
    assert other.equals(transposed)
    assert torch.equal(order, positions)


def test_transpose_keeps_the_order_of_repeated_entries() -> None:
    matrix = CSR(
        indptr=longs(0, 3, 5),
        indices=longs(1, 1, 0, 1, 1),
        values=torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]),
        num_cols=2,
    )
    transposed = matrix.transpose()
    assert transposed.values.tolist() == [3, 1, 2, 4, 5]
    assert transposed.indices.tolist() == [0, 0, 0, 1, 1]
    assert transposed.indices.dtype == torch.int64


def test_equals_tells_every_part_apart() -> None:
    dense = random_dense(5, 6, 0)
    matrix = csr(dense)
    assert matrix.equals(csr(dense.clone()))
    assert not matrix.equals(csr(dense, weighted=False))
    assert not matrix.equals(csr(dense * 2))
    assert not matrix.equals(csr(torch.cat([dense, torch.zeros(5, 1)], 1)))
    assert not matrix.equals(csr(dense.flip(0)))


def test_sharing_takes_what_is_equal() -> None:
    matrix = csr(random_dense(5, 6, 0))
    same = csr(random_dense(5, 6, 0))
    assert same.sharing(matrix) is matrix
    doubled = csr(2 * random_dense(5, 6, 0))
    shared = doubled.sharing(matrix)
    assert shared.equals(doubled)
    assert shared.indptr is matrix.indptr
    assert shared.indices is matrix.indices
    other = csr(random_dense(5, 6, 1))
    shared = other.sharing(matrix)
    assert shared.equals(other)
    assert shared.indices is other.indices


def test_to_converts_values_alone() -> None:
    matrix = csr(random_dense(5, 6, 0))
    single = matrix.to(torch.float32)
    assert single.values.dtype == torch.float32
    assert single.indices is matrix.indices
    assert matrix.to(torch.float64) is matrix
