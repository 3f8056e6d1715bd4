"""GAT's attention in torch operations, for devices and types without compiled kernels."""

import torch
from torch import Tensor

from gnndist.kernels.attention import AttentionState, EdgeDropout
from gnndist.kernels.csr import CSR
from gnndist.kernels.spmm import spmm


def running_softmax(
    csr: CSR,
    x: Tensor,
    scores: Tensor,
    dropout: EdgeDropout | None,
    state: AttentionState,
    fresh: bool,
) -> AttentionState:
    """Take edges' scores [nnz, heads] and their sources' x [cols, heads, D] into a state."""
    rows, heads = csr.row_ids(), scores.shape[1]
    if fresh:
        state.highest.fill_(-torch.inf)
        state.total.zero_()
        state.out.zero_()
    top = state.highest.scatter_reduce(0, rows[:, None].expand(-1, heads), scores, "amax")
    factors = torch.where(state.highest == top, 1.0, (state.highest - top).exp())
    weights = (scores - top[rows]).exp()
    state.total.mul_(factors).index_add_(0, rows, weights)
    state.highest.copy_(top)
    if dropout is not None:
        weights = weights * dropout.factors(csr, heads, weights.dtype)
    state.out.mul_(factors[..., None])
    for head in range(heads):
        state.out[:, head] += weigh(csr, weights[:, head], x[:, head])
    return state


def weigh(pattern: CSR, weights: Tensor, x: Tensor) -> Tensor:
    """Σ_j weights_ij x_j: weights [nnz], x [cols, D]."""
    if x.dtype not in (torch.float32, torch.float64):
        out = x.new_zeros(pattern.num_rows, x.shape[1])
        return out.index_add_(0, pattern.row_ids(), weights[:, None] * x[pattern.indices.long()])
    matrix = CSR(
        indptr=pattern.indptr,
        indices=pattern.indices,
        values=weights.contiguous(),
        num_cols=pattern.num_cols,
    )
    return spmm(matrix, x.contiguous())


def gat_forward_torch(
    csr: CSR,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    slope: float,
    dropout: EdgeDropout | None,
    state: AttentionState,
    fresh: bool,
) -> AttentionState:
    """As `gnndist.kernels.gat.gat_forward`."""
    scores = score_src[csr.indices.long()] + score_dst[csr.row_ids()]
    scores = torch.nn.functional.leaky_relu(scores, slope)
    return running_softmax(csr, x, scores, dropout, state, fresh)


def gat_backward_torch(
    csr: CSR,
    grad: Tensor,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    shift: Tensor,
    delta: Tensor,
    slope: float,
    dropout: EdgeDropout | None,
    grad_dst: Tensor,
    grad_x: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `gnndist.kernels.gat.gat_backward`."""
    rows, columns = csr.row_ids(), csr.indices.long()
    plain = score_src[columns] + score_dst[rows]
    weights = (torch.nn.functional.leaky_relu(plain, slope) - shift[rows]).exp()
    transposed, order = csr.transpose_positions()
    heads = x.shape[1]
    kept = weights
    dots = torch.stack(
        [(grad[rows, head] * x[columns, head]).sum(-1) for head in range(heads)], dim=1
    )
    if dropout is not None:
        factors = dropout.factors(csr, heads, x.dtype)
        kept, dots = weights * factors, dots * factors
    change = weights * (dots - delta[rows])
    change = torch.where(plain > 0, change, change * slope)
    for head in range(heads):
        grad_x[:, head] = weigh(transposed, kept[order, head], grad[:, head])
    grad_src = torch.zeros_like(score_src).index_add_(0, columns, change)
    return grad_x, grad_src, grad_dst.index_add_(0, rows, change)


def gatv2_forward_torch(
    csr: CSR,
    x: Tensor,
    x_dst: Tensor,
    attention: Tensor,
    slope: float,
    dropout: EdgeDropout | None,
    state: AttentionState,
    fresh: bool,
) -> AttentionState:
    """As `gnndist.kernels.gatv2.gatv2_forward`."""
    plain = x[csr.indices.long()] + x_dst[csr.row_ids()]
    scores = (torch.nn.functional.leaky_relu(plain, slope) * attention).sum(-1)
    return running_softmax(csr, x, scores, dropout, state, fresh)


def gatv2_backward_torch(
    csr: CSR,
    grad: Tensor,
    x: Tensor,
    x_dst: Tensor,
    attention: Tensor,
    shift: Tensor,
    delta: Tensor,
    slope: float,
    dropout: EdgeDropout | None,
    grad_dst: Tensor,
    grad_x: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `gnndist.kernels.gatv2.gatv2_backward`."""
    rows, columns = csr.row_ids(), csr.indices.long()
    plain = x[columns] + x_dst[rows]
    bent = torch.nn.functional.leaky_relu(plain, slope)
    weights = ((bent * attention).sum(-1) - shift[rows]).exp()
    kept, dots = weights, (grad[rows] * x[columns]).sum(-1)
    if dropout is not None:
        factors = dropout.factors(csr, x.shape[1], x.dtype)
        kept, dots = weights * factors, dots * factors
    change = (weights * (dots - delta[rows]))[..., None]
    grad_attention = (change * bent).sum(0)
    inner = change * attention
    inner = torch.where(plain > 0, inner, inner * slope)
    grad_x.zero_().index_add_(0, columns, inner + kept[..., None] * grad[rows])
    return grad_x, grad_dst.index_add_(0, rows, inner), grad_attention
