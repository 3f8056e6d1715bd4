"""Dense matrices as the kernels take them: one-dimensional arrays and a row stride."""

from typing import Any

import torch
from numba import types
from torch import Tensor

FLOATS = {torch.float32: types.float32, torch.float64: types.float64}
"""Types of features that compiled kernels take."""


def row_major(matrix: Tensor) -> bool:
    """Whether a matrix's rows are contiguous and do not overlap."""
    rows, width = matrix.shape
    return (width < 2 or matrix.stride(1) == 1) and (rows < 2 or matrix.stride(0) >= width)


def flat(matrix: Tensor) -> tuple[Any, int]:
    """A row-major matrix as a one-dimensional numpy array over its memory, and its row stride.

    A matrix that is not row-major is copied first, so never pass such a one to be written.
    """
    rows, width = matrix.shape
    if not row_major(matrix):
        matrix = matrix.contiguous()
    stride = matrix.stride(0) if rows > 1 else width
    length = (rows - 1) * stride + width if matrix.numel() else 0
    return matrix.detach().as_strided((length,), (1,)).numpy(), stride


def memory(tensor: Tensor) -> Any:
    """A contiguous tensor as a one-dimensional numpy array over its memory.

    Another tensor is copied first, so never pass such a one to be written.
    """
    return tensor.detach().contiguous().view(-1).numpy()


def check_output(out: Tensor, shape: tuple[int, int], like: Tensor) -> None:
    """Raise ValueError unless `out` can be written as a matrix of this shape and like's type."""
    if out.shape != shape or out.dtype != like.dtype or out.device != like.device:
        raise ValueError(
            f"out is {out.dtype} {tuple(out.shape)} on {out.device}; "
            f"{like.dtype} {shape} on {like.device} is needed"
        )
    if not row_major(out):
        raise ValueError(f"out has strides {out.stride()}; row-major memory is needed")


def check_matrix(matrix: Tensor, rows: int, name: str) -> None:
    """Raise ValueError unless this is a floating-point matrix of so many rows."""
    if matrix.dim() != 2 or matrix.shape[0] != rows or not matrix.dtype.is_floating_point:
        raise ValueError(
            f"{name} is {matrix.dtype} {tuple(matrix.shape)}; floating-point [{rows}, F] is needed"
        )
