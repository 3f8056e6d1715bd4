"""Dropout by hash, alone and fused with bias and ReLU: one pass over memory each way.

The mask is `gnndist.kernels.hashing.hash_mask`: it depends on the key, the global vertex id and
the feature index alone. Backward, it is read off the output where ReLU is on (a kept, positive
activation is positive) and computed again where not. float32 and float64 on the CPU run compiled;
other types and devices take the same mask from torch operations.
"""

from typing import Any

import numpy as np
import torch
from numba import types
from torch import Tensor

from gnndist.kernels.arithmetic import add, clip, drop, scale_by, where_positive
from gnndist.kernels.compiling import Kernel
from gnndist.kernels.dense import FLOATS, check_output, flat
from gnndist.kernels.hashing import global_ids, hash_id, hash_mask, threshold
from gnndist.kernels.threads import chunk_count, even_chunks, run_chunks
from gnndist.kernels.vector import load, load_first, store, store_first
from gnndist.ranges import ELEMENTWISE, ranged

SUM_ROWS = 1024
"""Rows summed into one partial bias gradient: fixed, so that sums do not depend on threads."""


def _forward(
    x: Any,
    x_stride: Any,
    bias: Any,
    out: Any,
    out_stride: Any,
    width: Any,
    ids: Any,
    start: Any,
    key: Any,
    least: Any,
    scale: Any,
    relu: Any,
    first_row: Any,
    last_row: Any,
) -> None:
    unit = 64 // x.itemsize
    for row in range(first_row, last_row):
        number = start + row if len(ids) == 0 else ids[row]
        words = hash_id(key, number)
        source, target = row * x_stride, row * out_stride
        f = 0
        while f + 2 * unit <= width:
            value = add(load(x, source + f, 2), load(bias, f, 2))
            if relu:
                value = clip(value)
            if least:
                value = drop(scale_by(scale, value), words, f, least)
            store(out, target + f, value)
            f += 2 * unit
        while f < width:
            count = min(width - f, unit)
            value = add(load_first(x, source + f, 1, count), load_first(bias, f, 1, count))
            if relu:
                value = clip(value)
            if least:
                value = drop(scale_by(scale, value), words, f, least)
            store_first(out, target + f, value, count)
            f += unit


def _backward(
    grad: Any,
    grad_stride: Any,
    out: Any,
    out_stride: Any,
    grad_x: Any,
    grad_x_stride: Any,
    sums: Any,
    width: Any,
    ids: Any,
    start: Any,
    key: Any,
    least: Any,
    scale: Any,
    relu: Any,
    first_row: Any,
    last_row: Any,
) -> None:
    unit = 64 // grad.itemsize
    for row in range(first_row, last_row):
        number = start + row if len(ids) == 0 else ids[row]
        words = hash_id(key, number)
        partial = row // SUM_ROWS * width
        f = 0
        while f < width:
            count = min(width - f, unit)
            value = load_first(grad, row * grad_stride + f, 1, count)
            if least:
                value = scale_by(scale, value)
            if relu:
                value = where_positive(load_first(out, row * out_stride + f, 1, count), value)
            elif least:
                value = drop(value, words, f, least)
            store_first(grad_x, row * grad_x_stride + f, value, count)
            if len(sums):
                total = load_first(sums, partial + f, 1, count)
                store_first(sums, partial + f, add(total, value), count)
            f += unit


def _signature(dtype: torch.dtype, forward: bool) -> Any:
    floats, longs, n = FLOATS[dtype][::1], types.int64[::1], types.int64
    ids = (longs, n, types.uint64, n, FLOATS[dtype], types.boolean, n, n)
    if forward:
        return types.void(floats, n, floats, floats, n, n, *ids)
    return types.void(floats, n, floats, n, floats, n, floats, n, *ids)


FORWARD = Kernel(_forward, {dtype: _signature(dtype, True) for dtype in FLOATS})
BACKWARD = Kernel(_backward, {dtype: _signature(dtype, False) for dtype in FLOATS})
NO_IDS = np.empty(0, np.int64)


@ranged(ELEMENTWISE)
def bias_relu_dropout(
    x: Tensor,
    bias: Tensor | None,
    p: float,
    key: int,
    rows: int | Tensor,
    relu: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """dropout(relu(x + bias)) in one pass.

    Parameters
    ----------
    x:
        [n, F]; a view with unit stride inside rows is used as it is.
    bias:
        [F] of x's type, or None.
    p:
        probability of dropping; what is kept is divided by 1 - p.
    key:
        from `dropout_key`.
    rows:
        global ids of the n vertices: the first of a run, or int64 [n].
    relu:
        whether negatives become 0.
    out:
        [n, F] of x's type to write to; may be x itself.

    Raises
    ------
    ValueError
        where shapes or types do not fit or p is not a probability.
    """
    least, (count, width) = threshold(p), _shape(x)
    if bias is not None and (bias.shape != (width,) or bias.dtype != x.dtype):
        raise ValueError(
            f"bias is {bias.dtype} {tuple(bias.shape)}; {x.dtype} ({width},) is needed"
        )
    if out is None:
        out = x.new_empty((count, width))
    check_output(out, (count, width), x)
    ids, start = _ids(rows, count)
    if p == 1.0:
        return out.zero_()
    if not _compiled(x):
        return _forward_torch(x, bias, p, key, rows, relu, out)
    shift = np.zeros(width, x.detach()[:0].numpy().dtype) if bias is None else flat(bias[None])[0]
    kernel = FORWARD(x.dtype)
    (x_flat, x_stride), (out_flat, out_stride) = flat(x), flat(out)
    arguments = (ids, start, np.uint64(key), least, 1.0 / (1.0 - p), relu)

    def task(first: int, last: int) -> None:
        kernel(x_flat, x_stride, shift, out_flat, out_stride, width, *arguments, first, last)

    run_chunks(task, even_chunks(count, chunk_count(count * width)))
    return out


@ranged(ELEMENTWISE)
def bias_relu_dropout_backward(
    grad: Tensor,
    out: Tensor | None,
    p: float,
    key: int,
    rows: int | Tensor,
    relu: bool = True,
    need_bias: bool = True,
    grad_x: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Gradients of `bias_relu_dropout` for x, [n, F], and bias, [F], from that of its output.

    Parameters
    ----------
    grad:
        [n, F], of the output.
    out:
        [n, F], the output, where relu is on: the mask is read off it. Else None will do.
    p, key, rows, relu:
        as in the forward pass.
    need_bias:
        whether to sum the bias's gradient; None is returned for it otherwise.
    grad_x:
        [n, F] to write to; may be grad itself.
    """
    least, (count, width) = threshold(p), _shape(grad)
    if relu and (out is None or out.shape != grad.shape or out.dtype != grad.dtype):
        raise ValueError(f"with relu, the output {tuple(grad.shape)} of grad's type is needed")
    if grad_x is None:
        grad_x = grad.new_empty((count, width))
    check_output(grad_x, (count, width), grad)
    ids, start = _ids(rows, count)
    if p == 1.0:
        return grad_x.zero_(), grad.new_zeros(width) if need_bias else None
    if not _compiled(grad):
        return _backward_torch(grad, out, p, key, rows, relu, need_bias, grad_x)
    kernel = BACKWARD(grad.dtype)
    (grad_flat, grad_stride), (x_flat, x_stride) = flat(grad), flat(grad_x)
    out_flat, out_stride = flat(grad if out is None else out)
    blocks = -(-count // SUM_ROWS)
    sums = np.zeros((blocks if need_bias else 0, width), grad_flat.dtype)
    arguments = (ids, start, np.uint64(key), least, 1.0 / (1.0 - p), relu)

    def task(first: int, last: int) -> None:
        kernel(
            grad_flat,
            grad_stride,
            out_flat,
            out_stride,
            x_flat,
            x_stride,
            sums.reshape(-1),
            width,
            *arguments,
            first * SUM_ROWS,
            min(last * SUM_ROWS, count),
        )

    run_chunks(task, even_chunks(blocks, min(chunk_count(count * width), max(blocks, 1))))
    return grad_x, torch.from_numpy(sums.sum(axis=0)) if need_bias else None


def hash_dropout(
    x: Tensor, p: float, key: int, rows: int | Tensor, out: Tensor | None = None
) -> Tensor:
    """x [n, F] with each element kept with probability 1 - p, and then divided by 1 - p.

    The operation is its own adjoint: the gradient for x is `hash_dropout(grad, p, key, rows)`.
    `out` may be x itself; with p = 0 and no `out`, x itself is returned.
    """
    if p == 0.0 and out is None:
        _ids(rows, _shape(x)[0])
        return x
    return bias_relu_dropout(x, None, p, key, rows, relu=False, out=out)


def _compiled(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in FLOATS


def _shape(x: Tensor) -> tuple[int, int]:
    if x.dim() != 2 or not x.dtype.is_floating_point:
        raise ValueError(f"{x.dtype} {tuple(x.shape)}; a floating-point matrix is needed")
    return x.shape[0], x.shape[1]


def _ids(rows: int | Tensor, count: int) -> tuple[Any, int]:
    """Global ids as the kernels take them: an array (empty for a run) and a run's start."""
    if isinstance(rows, int):
        return NO_IDS, rows
    return global_ids(rows, count, torch.device("cpu")).contiguous().numpy(), 0


def _forward_torch(
    x: Tensor, bias: Tensor | None, p: float, key: int, rows: int | Tensor, relu: bool, out: Tensor
) -> Tensor:
    value = x if bias is None else x + bias
    value = value.relu() if relu else value
    if threshold(p):
        mask = hash_mask(p, key, rows, *_shape(x), x.device)
        value = torch.where(mask, value * (1.0 / (1.0 - p)), 0.0)
    return out.copy_(value)


def _backward_torch(
    grad: Tensor,
    out: Tensor | None,
    p: float,
    key: int,
    rows: int | Tensor,
    relu: bool,
    need_bias: bool,
    grad_x: Tensor,
) -> tuple[Tensor, Tensor | None]:
    value = grad * (1.0 / (1.0 - p)) if threshold(p) else grad
    if relu and out is not None:
        value = torch.where(out > 0, value, 0.0)
    elif threshold(p):
        value = torch.where(hash_mask(p, key, rows, *_shape(grad), grad.device), value, 0.0)
    grad_x.copy_(value)
    return grad_x, grad_x.sum(0) if need_bias else None
