"""Sparse times dense against the dense product, at awkward shapes, strides and thread counts."""

import importlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_matrices import FLOATS, TOLERANCE, csr, normal, random_dense, strided

from gnndist.kernels import CSR, spmm
from gnndist.kernels.spmm import TILE, spmm_torch
from gnndist.kernels.threads import MIN_WORK

WIDTHS = [*range(1, 68), 95, 96, 100, 127, 128, 129, 172, 191, 192, 193, 255, 256, 257, 300]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_width_against_dense(dtype: torch.dtype, weighted: bool) -> None:
    dense = random_dense(11, 2 * TILE + 3, 1, dtype=dtype)  # row 0 takes three tiles
    matrix = csr(dense, weighted)
    reference = (dense if weighted else (dense != 0).to(dtype)).double()
    for width in WIDTHS:
        x = normal(dense.shape[1], width, seed=width, dtype=dtype)
        expected = reference @ x.double()
        torch.testing.assert_close(
            spmm(matrix, x).double(), expected, rtol=0, atol=TOLERANCE[dtype]
        )
        out = strided(normal(11, width, seed=1, dtype=dtype))
        before = out.double().clone()
        assert spmm(matrix, strided(x), out=out, accumulate=True) is out
        torch.testing.assert_close(out.double(), before + expected, rtol=0, atol=TOLERANCE[dtype])
        around = torch.cat([out._base[:, :1], out._base[:, -2:]], 1)
        assert around.isnan().all()  # nothing is written beside the view


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 40),
    st.integers(0, 99),
    st.booleans(),
    st.sampled_from([torch.int32, torch.int64]),
)
def test_shapes_down_to_nothing(
    rows: int, cols: int, width: int, seed: int, weighted: bool, ids: torch.dtype
) -> None:
    dense = random_dense(rows, cols, seed)
    matrix = csr(dense, weighted)
    matrix = CSR(
        indptr=matrix.indptr,
        indices=matrix.indices.to(ids),
        values=matrix.values,
        num_cols=cols,
    )
    x = normal(cols, width, seed=seed)
    expected = (dense if weighted else (dense != 0).double()) @ x
    torch.testing.assert_close(spmm(matrix, x), expected, rtol=0, atol=1e-12)
    out = normal(rows, width, seed=2)
    torch.testing.assert_close(
        spmm_torch(matrix, x, out.clone(), accumulate=True), out + expected, rtol=0, atol=1e-12
    )


def test_a_given_output_is_overwritten_whatever_it_holds() -> None:
    dense = random_dense(6, 9, 3)
    x = normal(9, 21)
    out = torch.full((6, 21), torch.nan, dtype=torch.float64)
    assert spmm(csr(dense), x, out=out) is out
    torch.testing.assert_close(out, dense @ x)


def test_a_column_major_input_is_taken_too() -> None:
    dense = random_dense(6, 9, 3)
    x = normal(9, 21)
    torch.testing.assert_close(spmm(csr(dense), x.t().contiguous().t()), dense @ x)
    torch.testing.assert_close(spmm(csr(dense), x[:1].expand(9, 21)), dense @ x[:1].expand(9, 21))


def test_adjoint_identity() -> None:
    dense = random_dense(40, 30, 4)
    matrix = csr(dense)
    x, y = normal(30, 5), normal(40, 5, seed=1)
    left, right = (spmm(matrix, x) * y).sum(), (x * spmm(matrix.transpose(), y)).sum()
    assert abs(float(left - right)) < 1e-12 * abs(float(left))


@pytest.fixture
def threads() -> object:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", FLOATS)
def test_same_bits_on_any_number_of_threads(threads: object, dtype: torch.dtype) -> None:
    dense = random_dense(400, 300, 5, density=0.1, dtype=dtype)
    matrix, x = csr(dense), normal(300, 100, dtype=dtype)
    assert matrix.nnz * 100 > 4 * MIN_WORK  # enough for several chunks
    results = []
    for count in (1, 2, 3):
        threads(count)  # type: ignore[operator]
        results.append(spmm(matrix, x))
    assert len(matrix.chunks(100)) > 3
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_called_from_several_threads_at_once(threads: object) -> None:
    threads(2)  # type: ignore[operator]
    dense = random_dense(400, 300, 6, density=0.1, dtype=torch.float32)
    matrix = csr(dense)
    inputs = [normal(300, 100, seed=seed, dtype=torch.float32) for seed in range(8)]
    expected = [spmm(matrix, x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for result, reference in zip(
                pool.map(lambda x: spmm(matrix, x), inputs), expected, strict=True
            ):
                assert torch.equal(result, reference)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(8, 3)}, r"\(8, 3\).*\[9, F\]"),
        ({"x": torch.zeros(9)}, r"\[9, F\]"),
        ({"x": torch.zeros(9, 3, dtype=torch.float16)}, "float16"),
        ({"x": torch.zeros(9, 3, dtype=torch.float64)}, "values are torch.float32"),
        ({"out": torch.zeros(6, 4)}, r"\(6, 4\)"),
        ({"out": torch.zeros(6, 3, dtype=torch.float64)}, "float64"),
        ({"out": torch.zeros(3, 6).t()}, "row-major"),
        ({"out": torch.zeros(1, 3).expand(6, 3)}, "row-major"),
        ({"accumulate": True}, "accumulate needs out"),
    ],
)
def test_refuses_what_does_not_fit(change: dict[str, object], message: str) -> None:
    matrix = csr(random_dense(6, 9, 3, dtype=torch.float32))
    with pytest.raises(ValueError, match=message):
        spmm(matrix, **{"x": torch.zeros(9, 3), **change})  # type: ignore[arg-type]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", [40, 256])
def test_several_passes_over_columns_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, weighted: bool, width: int
) -> None:
    """The same matrix in one pass, and in as many as a small cache asks for."""
    dense = random_dense(300, 200, 7, density=0.2, dtype=torch.float32)
    x = normal(200, width, dtype=torch.float32)
    one = csr(dense, weighted)
    assert len(one.passes(4 * width)) == 1
    expected = spmm(one, x)
    module = importlib.import_module("gnndist.kernels.csr")
    monkeypatch.setattr(module, "CACHE", 25 * 4 * width)  # 25 of the 200 rows of x
    several = csr(dense, weighted)
    passes = several.passes(4 * width)
    assert len(passes) == 8
    covered = sum(int((stops - starts).sum()) for starts, stops in passes)
    assert covered == several.nnz
    assert torch.equal(spmm(several, x), expected)
    before = normal(300, width, seed=1, dtype=torch.float32)
    sums = spmm(several, x, out=before.clone(), accumulate=True)
    assert torch.equal(sums, spmm(one, x, out=before.clone(), accumulate=True))


def test_one_pass_where_there_is_locality_or_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("gnndist.kernels.csr")
    monkeypatch.setattr(module, "CACHE", 25 * 160)
    rows, columns = torch.arange(300)[:, None], torch.arange(200)
    near = csr(((rows * 200 // 300 - columns).abs() < 6).double())
    assert len(near.passes(160)) == 1
    far = csr(random_dense(300, 200, 7, density=0.2))
    assert len(far.passes(160)) > 1
    turned = CSR(indptr=far.indptr, indices=199 - far.indices, num_cols=200)
    assert len(turned.passes(160)) == 1  # columns fall inside rows
