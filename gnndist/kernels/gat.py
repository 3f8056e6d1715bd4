"""GAT's attention: score_ij = leaky_relu(score_src_j + score_dst_i), a number an edge and head.

Forward, each row is computed by one thread, its neighbours in order. Backward, gradients for
sources go by the transposed matrix, one thread a source; each edge's score gradient is left at the
edge's own place, from where each destination sums its own. So there are no atomics, and results do
not depend on the number of threads.
"""

import torch
from torch import Tensor

from gnndist.kernels.attention import (
    AttentionState,
    EdgeDropout,
    dropout_arguments,
    empty_state,
)
from gnndist.kernels.attention_torch import gat_backward_torch, gat_forward_torch
from gnndist.kernels.csr import CSR
from gnndist.kernels.dense import FLOATS, check_matrix, check_output, flat, memory
from gnndist.kernels.gat_loops import BACKWARD, FORWARD, SUM_EDGES
from gnndist.kernels.threads import run_chunks
from gnndist.ranges import SPARSE, ranged


@ranged(SPARSE)
def gat_forward(
    csr: CSR,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    *,
    slope: float = 0.2,
    dropout: EdgeDropout | None = None,
    state: AttentionState | None = None,
    out: Tensor | None = None,
) -> AttentionState:
    """Take a matrix's neighbours into a running softmax.

    Parameters
    ----------
    csr:
        [rows, cols]: row i holds the sources that i attends to; its values play no part.
    x:
        [cols, heads, D], what is summed.
    score_src, score_dst:
        [cols, heads] and [rows, heads]: score_ij = leaky_relu(score_src_j + score_dst_i).
    slope:
        of leaky_relu below 0.
    dropout:
        leaves edges out of `out`, not out of `total`.
    state:
        another matrix's sums for the same rows, to be continued in place.
    out:
        [rows, heads, D] contiguous memory for a new state's `out`.

    Returns
    -------
    AttentionState
        whose `finish` gives the output, and whose `shift` the backward pass needs.
    """
    rows, heads, width = _check(csr, x, score_src, score_dst)
    arguments = dropout_arguments(dropout, csr)
    fresh = state is None
    state = empty_state(rows, x, out) if state is None else state
    check_output(state.highest, (rows, heads), x)
    check_output(state.total, (rows, heads), x)
    check_output(state.out.view(rows, heads * width), (rows, heads * width), x)
    if x.device.type != "cpu" or x.dtype not in FLOATS:
        return gat_forward_torch(csr, x, score_src, score_dst, slope, dropout, state, fresh)
    indptr, indices, _ = csr.arrays()
    kernel = FORWARD(x.dtype)
    first = (
        *(indptr, indices, *flat(x.flatten(1)), memory(score_src), memory(score_dst)),
        *(memory(state.highest), memory(state.total), memory(state.out), heads, width, slope),
    )

    def task(first_row: int, last_row: int) -> None:
        kernel(*first, *arguments, not fresh, first_row, last_row)

    run_chunks(task, csr.chunks(heads * (width + 4)))
    return state


@ranged(SPARSE)
def gat_backward(
    csr: CSR,
    grad: Tensor,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    shift: Tensor,
    delta: Tensor,
    *,
    slope: float = 0.2,
    dropout: EdgeDropout | None = None,
    grad_dst: Tensor | None = None,
    grad_x: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of attention for one matrix's x, score_src and score_dst.

    Call it once for each matrix that was taken in, with the same grad, shift and delta:
    weight_ij = exp(score_ij - shift_i); score's gradient = weight (kept ⟨grad_i, x_j⟩ - delta_i).

    Parameters
    ----------
    csr, x, score_src, score_dst, slope, dropout:
        as forward.
    grad:
        [rows, heads, D], of the finished output.
    shift:
        [rows, heads], `AttentionState.shift()` after the last matrix.
    delta:
        [rows, heads], `attention_delta(grad, finished output)`.
    grad_dst:
        [rows, heads] to add to, of a call for another matrix.
    grad_x:
        [cols, heads, D] contiguous memory to write to.

    Returns
    -------
    grad_x, grad_src, grad_dst
        [cols, heads, D], [cols, heads], [rows, heads].
    """
    rows, heads, width = _check(csr, x, score_src, score_dst)
    arguments = dropout_arguments(dropout, csr)
    check_matrix(grad.flatten(1), rows, "grad")
    grad_dst = torch.zeros_like(score_dst) if grad_dst is None else grad_dst
    check_output(grad_dst, (rows, heads), x)
    grad_x = x.new_empty(x.shape) if grad_x is None else grad_x
    check_output(grad_x.view(csr.num_cols, heads * width), (csr.num_cols, heads * width), x)
    if x.device.type != "cpu" or x.dtype not in FLOATS:
        return gat_backward_torch(
            csr, grad, x, score_src, score_dst, shift, delta, slope, dropout, grad_dst, grad_x
        )
    transposed, positions = csr.transpose_positions()
    indptr, indices, _ = transposed.arrays()
    ends = torch.stack([score_dst, shift, delta], dim=1)
    grad_src = x.new_empty(csr.num_cols, heads)
    grad_edges = memory(x.new_empty(csr.nnz, heads))
    grad_flat, grad_stride = flat(grad.flatten(1))
    kernel, sum_edges = BACKWARD(x.dtype), SUM_EDGES(x.dtype)
    first = (
        *(indptr, indices, positions.numpy(), *flat(x.flatten(1)), memory(score_src)),
        *(memory(ends), grad_flat, grad_stride, *flat(grad_x.flatten(1)), memory(grad_src)),
        *(grad_edges, heads, width, slope),
    )

    def task(first_row: int, last_row: int) -> None:
        kernel(*first, *arguments, first_row, last_row)

    run_chunks(task, transposed.chunks(2 * heads * (width + 4)))
    own, sums = csr.arrays()[0], memory(grad_dst)
    run_chunks(lambda a, b: sum_edges(own, grad_edges, sums, heads, a, b), csr.chunks(heads))
    return grad_x, grad_src, grad_dst


def _check(csr: CSR, x: Tensor, score_src: Tensor, score_dst: Tensor) -> tuple[int, int, int]:
    if x.dim() != 3 or x.shape[0] != csr.num_cols or not x.dtype.is_floating_point:
        raise ValueError(
            f"x is {x.dtype} {tuple(x.shape)}; floating-point [{csr.num_cols}, heads, D] is needed"
        )
    heads, width = x.shape[1:]
    for name, scores, count in (
        ("score_src", score_src, csr.num_cols),
        ("score_dst", score_dst, csr.num_rows),
    ):
        if scores.shape != (count, heads) or scores.dtype != x.dtype:
            raise ValueError(
                f"{name} is {scores.dtype} {tuple(scores.shape)}; {x.dtype} "
                f"{(count, heads)} is needed"
            )
    return csr.num_rows, heads, width
