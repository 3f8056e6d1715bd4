"""Sums over the rows of a matrix, column by column, and what batch norm makes of them.

Sums are formed in float64, in blocks of a fixed number of rows, so that they do not depend on the
number of threads.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import types
from torch import Tensor

from gnndist.kernels.compiling import Kernel
from gnndist.kernels.dense import FLOATS, check_matrix, flat, memory
from gnndist.kernels.threads import chunk_count, even_chunks, run_chunks
from gnndist.ranges import ELEMENTWISE, ranged

SUM_ROWS = 256
"""Rows summed into one partial sum."""


def _moments(x: Any, stride: Any, sums: Any, width: Any, first_row: Any, last_row: Any) -> None:
    for row in range(first_row, last_row):
        place = row // SUM_ROWS * 2 * width
        for f in range(width):
            value = np.float64(x[row * stride + f])
            sums[place + f] += value
            sums[place + width + f] += value * value


def _products(
    grad: Any,
    grad_stride: Any,
    x: Any,
    stride: Any,
    mean: Any,
    sums: Any,
    width: Any,
    first_row: Any,
    last_row: Any,
) -> None:
    for row in range(first_row, last_row):
        place = row // SUM_ROWS * 2 * width
        for f in range(width):
            g = np.float64(grad[row * grad_stride + f])
            sums[place + f] += g
            sums[place + width + f] += g * (np.float64(x[row * stride + f]) - mean[f])


def _normalize_backward(
    grad: Any,
    grad_stride: Any,
    x: Any,
    stride: Any,
    columns: Any,
    out: Any,
    width: Any,
    first_row: Any,
    last_row: Any,
) -> None:
    """columns [4, width]: mean, factor, shift, slope."""
    for row in range(first_row, last_row):
        for f in range(width):
            centred = x[row * stride + f] - columns[f]
            change = grad[row * grad_stride + f] - columns[2 * width + f]
            change -= centred * columns[3 * width + f]
            out[row * width + f] = columns[width + f] * change


def _signatures(dtype: torch.dtype) -> tuple[Any, Any, Any]:
    floats, doubles, n = FLOATS[dtype][::1], types.float64[::1], types.int64
    return (
        types.void(floats, n, doubles, n, n, n),
        types.void(floats, n, floats, n, doubles, doubles, n, n, n),
        types.void(floats, n, floats, n, floats, floats, n, n, n),
    )


MOMENTS = Kernel(_moments, {dtype: _signatures(dtype)[0] for dtype in FLOATS})
PRODUCTS = Kernel(_products, {dtype: _signatures(dtype)[1] for dtype in FLOATS})
BACKWARD = Kernel(_normalize_backward, {dtype: _signatures(dtype)[2] for dtype in FLOATS})


@ranged(ELEMENTWISE)
def column_moments(x: Tensor) -> Tensor:
    """[2, F] float64: the sums of x's columns, and of their squares. x is [n, F]."""
    check_matrix(x, len(x), "x")
    if not _compiled(x):
        wide = x.double()
        return torch.stack([wide.sum(0), wide.square().sum(0)])
    kernel, (values, stride) = MOMENTS(x.dtype), flat(x)
    return _summed(lambda sums, a, b: kernel(values, stride, sums, x.shape[1], a, b), x)


@ranged(ELEMENTWISE)
def column_products(grad: Tensor, x: Tensor, mean: Tensor) -> Tensor:
    """[2, F] float64: Σ grad and Σ grad · (x − mean) over the rows.

    grad and x are [n, F] of one type, mean [F] float64.
    """
    _check_pair(grad, x)
    if not _compiled(x):
        wide = grad.double()
        return torch.stack([wide.sum(0), (wide * (x - mean)).sum(0)])
    kernel, gradient, values, centre = PRODUCTS(x.dtype), flat(grad), flat(x), memory(mean)
    width = x.shape[1]
    return _summed(lambda sums, a, b: kernel(*gradient, *values, centre, sums, width, a, b), x)


@ranged(ELEMENTWISE)
def normalize_backward(
    grad: Tensor, x: Tensor, mean: Tensor, factor: Tensor, shift: Tensor, slope: Tensor
) -> Tensor:
    """[n, F]: factor · (grad − shift − (x − mean) · slope); all four are [F] of any float type."""
    _check_pair(grad, x)
    columns = torch.stack([c.to(x.dtype) for c in (mean, factor, shift, slope)])
    if not _compiled(x):
        mean, factor, shift, slope = columns
        return (grad - shift - (x - mean) * slope) * factor
    out = x.new_empty(x.shape)
    kernel, width = BACKWARD(x.dtype), x.shape[1]
    arguments = (*flat(grad), *flat(x), memory(columns), memory(out), width)
    bounds = even_chunks(len(x), chunk_count(x.numel()))
    run_chunks(lambda a, b: kernel(*arguments, a, b), bounds)
    return out


def _compiled(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in FLOATS


def _check_pair(grad: Tensor, x: Tensor) -> None:
    check_matrix(x, len(x), "x")
    if grad.shape != x.shape or grad.dtype != x.dtype:
        raise ValueError(
            f"grad is {grad.dtype} {tuple(grad.shape)}; {x.dtype} {tuple(x.shape)} is needed"
        )


def _summed(add_rows: Callable[[Any, int, int], object], x: Tensor) -> Tensor:
    """[2, F] from ``add_rows(sums, first_row, last_row)``, a partial sum a block of rows."""
    rows, width = x.shape
    blocks = -(-rows // SUM_ROWS)
    sums = np.zeros((blocks, 2, width))
    partial = sums.reshape(-1)

    def task(first: int, last: int) -> None:
        add_rows(partial, first * SUM_ROWS, min(last * SUM_ROWS, rows))

    run_chunks(task, even_chunks(blocks, max(min(chunk_count(x.numel()), blocks), 1)))
    return torch.from_numpy(sums.sum(axis=0))
