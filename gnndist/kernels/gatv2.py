"""GATv2's attention: score_ij = Σ_d a_d · leaky_relu(x_src_j + x_dst_i)_d, for each head.

Backward goes twice over the edges. By destinations: scores again, gradients for x_dst and a; each
edge's weight and score gradient are left at the edge's place, [nnz, heads] each, and gathered from
there by sources, with the transposed matrix. No atomics: results do not depend on the number of
threads.
"""

import numpy as np
import torch
from torch import Tensor

from gnndist.kernels.attention import (
    AttentionState,
    EdgeDropout,
    dropout_arguments,
    empty_state,
)
from gnndist.kernels.attention_torch import gatv2_backward_torch, gatv2_forward_torch
from gnndist.kernels.csr import CSR
from gnndist.kernels.dense import FLOATS, check_matrix, check_output, flat, memory
from gnndist.kernels.gatv2_loops import DESTINATIONS, FORWARD, SOURCES, SUM_ROWS
from gnndist.kernels.threads import even_chunks, run_chunks
from gnndist.ranges import SPARSE, ranged


@ranged(SPARSE)
def gatv2_forward(
    csr: CSR,
    x: Tensor,
    x_dst: Tensor,
    attention: Tensor,
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
    x, x_dst:
        [cols, heads, D] of sources, also what is summed, and [rows, heads, D] of destinations.
    attention:
        [heads, D], a.
    slope, dropout, state, out, returns:
        as `gnndist.kernels.gat.gat_forward`.
    """
    rows, heads, width = _check(csr, x, x_dst, attention)
    arguments = dropout_arguments(dropout, csr)
    fresh = state is None
    state = empty_state(rows, x, out) if state is None else state
    check_output(state.highest, (rows, heads), x)
    check_output(state.total, (rows, heads), x)
    check_output(state.out.view(rows, heads * width), (rows, heads * width), x)
    if x.device.type != "cpu" or x.dtype not in FLOATS:
        return gatv2_forward_torch(csr, x, x_dst, attention, slope, dropout, state, fresh)
    indptr, indices, _ = csr.arrays()
    kernel = FORWARD(x.dtype)
    first = (
        *(indptr, indices, *flat(x.flatten(1)), *flat(x_dst.flatten(1)), memory(attention)),
        *(memory(state.highest), memory(state.total), memory(state.out), heads, width, slope),
    )

    def task(first_row: int, last_row: int) -> None:
        kernel(*first, *arguments, not fresh, first_row, last_row)

    run_chunks(task, csr.chunks(2 * heads * (width + 4)))
    return state


@ranged(SPARSE)
def gatv2_backward(
    csr: CSR,
    grad: Tensor,
    x: Tensor,
    x_dst: Tensor,
    attention: Tensor,
    shift: Tensor,
    delta: Tensor,
    *,
    slope: float = 0.2,
    dropout: EdgeDropout | None = None,
    grad_dst: Tensor | None = None,
    grad_x: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of attention for one matrix's x, x_dst and a.

    Call it once for each matrix that was taken in, with the same grad, shift and delta, as
    `gnndist.kernels.gat.gat_backward`; grad_dst [rows, heads, D] of one call may be given to the
    next, to be added to; grad_x [cols, heads, D] is memory to write to.

    Returns
    -------
    grad_x, grad_dst, grad_attention
        [cols, heads, D], [rows, heads, D], [heads, D].
    """
    rows, heads, width = _check(csr, x, x_dst, attention)
    arguments = dropout_arguments(dropout, csr)
    check_matrix(grad.flatten(1), rows, "grad")
    grad_dst = x.new_zeros(rows, heads, width) if grad_dst is None else grad_dst
    check_output(grad_dst.view(rows, heads * width), (rows, heads * width), x)
    grad_x = x.new_empty(x.shape) if grad_x is None else grad_x
    check_output(grad_x.view(csr.num_cols, heads * width), (csr.num_cols, heads * width), x)
    if x.device.type != "cpu" or x.dtype not in FLOATS:
        return gatv2_backward_torch(
            csr, grad, x, x_dst, attention, shift, delta, slope, dropout, grad_dst, grad_x
        )
    indptr, indices, _ = csr.arrays()
    blocks = -(-rows // SUM_ROWS)
    sums = np.zeros((blocks, heads * width), memory(attention).dtype)
    edge_weights, edge_grads = (memory(x.new_empty(csr.nnz, heads)) for _ in range(2))
    inputs = (*flat(x.flatten(1)), *flat(x_dst.flatten(1)), memory(attention))
    gradient = flat(grad.flatten(1))
    by_destination = (
        *(indptr, indices, *inputs, memory(shift), memory(delta), *gradient, memory(grad_dst)),
        *(sums.reshape(-1), edge_weights, edge_grads, heads, width, slope, *arguments),
    )
    destinations, sources = DESTINATIONS(x.dtype), SOURCES(x.dtype)

    def task(first: int, last: int) -> None:
        destinations(*by_destination, first * SUM_ROWS, min(last * SUM_ROWS, rows))

    run_chunks(task, even_chunks(blocks, max(blocks, 1)))
    transposed, positions = csr.transpose_positions()
    indptr, indices, _ = transposed.arrays()
    by_source = (
        *(indptr, indices, positions.numpy(), *inputs, *gradient, memory(grad_x)),
        *(edge_weights, edge_grads, heads, width, slope),
    )
    bounds = transposed.chunks(3 * heads * width)
    run_chunks(lambda first, last: sources(*by_source, first, last), bounds)
    grad_attention = torch.from_numpy(sums.sum(axis=0)).view(heads, width)
    return grad_x, grad_dst, grad_attention


def _check(csr: CSR, x: Tensor, x_dst: Tensor, attention: Tensor) -> tuple[int, int, int]:
    if x.dim() != 3 or x.shape[0] != csr.num_cols or not x.dtype.is_floating_point:
        raise ValueError(
            f"x is {x.dtype} {tuple(x.shape)}; floating-point [{csr.num_cols}, heads, D] is needed"
        )
    heads, width = x.shape[1:]
    for name, other, shape in (
        ("x_dst", x_dst, (csr.num_rows, heads, width)),
        ("attention", attention, (heads, width)),
    ):
        if other.shape != shape or other.dtype != x.dtype:
            raise ValueError(
                f"{name} is {other.dtype} {tuple(other.shape)}; {x.dtype} {shape} is needed"
            )
    return csr.num_rows, heads, width
