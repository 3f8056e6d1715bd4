"""Sums over rows and batch norm's gradient against plain torch, compiled and not."""

import pytest
import torch

from gnndist.kernels import column_moments, column_products, normalize_backward


def matrices(rows: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(rows + width)
    wide = torch.randn(rows, width + 3, dtype=torch.float64) + 2
    return wide[:, :width].to(dtype), wide[:, 3:].to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("rows", "width"), [(0, 3), (1, 1), (255, 5), (256, 8), (1000, 33)])
@pytest.mark.parametrize("threads", [1, 3])
def test_against_torch(rows: int, width: int, dtype: torch.dtype, threads: int) -> None:
    grad, x = matrices(rows, width, dtype)
    mean, factor, shift, slope = torch.randn(4, width, dtype=torch.float64)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        moments, products = column_moments(x), column_products(grad, x, mean)
        found = normalize_backward(grad, x, mean, factor, shift, slope)
    finally:
        torch.set_num_threads(before)
    g, v = grad.double(), x.double()
    torch.testing.assert_close(moments, torch.stack([v.sum(0), v.square().sum(0)]))
    torch.testing.assert_close(products, torch.stack([g.sum(0), (g * (v - mean)).sum(0)]))
    wanted = factor * (g - shift - (v - mean) * slope)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 0.1}[dtype]
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)
    assert found.dtype == dtype


def test_rows_of_a_wider_matrix_are_used_in_place() -> None:
    wide = torch.arange(12.0).view(3, 4)
    assert torch.equal(column_moments(wide[:, 1:3])[0], torch.tensor([15.0, 18.0]).double())


def test_sums_do_not_depend_on_threads() -> None:
    _, x = matrices(3000, 100, torch.float32)
    before = torch.get_num_threads()
    found = []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        found.append(column_moments(x))
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"grad is torch.float32 \(2, 3\); torch.float32 \(2, 4\)"):
        column_products(torch.ones(2, 3), torch.ones(2, 4), torch.ones(4, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"x is torch.int64 \(2, 3\)"):
        column_moments(torch.ones(2, 3, dtype=torch.int64))
