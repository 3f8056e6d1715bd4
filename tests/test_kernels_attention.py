"""GAT's and GATv2's attention kernels against a dense softmax and its autograd."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from kernel_matrices import csr, normal, random_dense
from numba import njit
from torch import Tensor

from gnndist.kernels import (
    AttentionState,
    EdgeDropout,
    attention_delta,
    dropout_key,
    edge_hash_mask,
    gat_backward,
    gat_forward,
    gatv2_backward,
    gatv2_forward,
)
from gnndist.kernels.arithmetic import exponential
from gnndist.kernels.attention import empty_state
from gnndist.kernels.attention_torch import (
    gat_backward_torch,
    gat_forward_torch,
    gatv2_backward_torch,
    gatv2_forward_torch,
)
from gnndist.kernels.vector import load, store

SLOPE = 0.2
ROWS, COLS = 11, 140  # row 0 has all the columns: three tiles
SHAPES = [(1, 1), (8, 8), (2, 64), (3, 70), (1, 129)]
DTYPES = [(torch.float32, 2e-4), (torch.float64, 1e-11)]


def by_torch(forward: Callable[..., Any]) -> Callable[..., AttentionState]:
    """The torch operations under the compiled kernels' signature."""

    def call(matrix: Any, *inputs: Tensor, slope: float, dropout: Any, state: Any) -> Any:
        fresh = state is None
        state = empty_state(matrix.num_rows, inputs[0]) if fresh else state
        return forward(matrix, *inputs, slope, dropout, state, fresh)

    return call


def back_by_torch(backward: Callable[..., Any], destinations: int) -> Callable[..., Any]:
    """Likewise; `destinations` is which input has a row a destination."""

    def call(
        matrix: Any, grad: Tensor, *inputs: Tensor, slope: float, dropout: Any, grad_dst: Any
    ) -> Any:
        grad_dst = torch.zeros_like(inputs[destinations]) if grad_dst is None else grad_dst
        grad_x = torch.full_like(inputs[0], torch.nan)
        return backward(matrix, grad, *inputs, slope, dropout, grad_dst, grad_x)

    return call


def scores_gat(x: Tensor, score_src: Tensor, score_dst: Tensor) -> Tensor:
    return torch.nn.functional.leaky_relu(score_src[None] + score_dst[:, None], SLOPE)


def scores_gatv2(x: Tensor, x_dst: Tensor, attention: Tensor) -> Tensor:
    bent = torch.nn.functional.leaky_relu(x[None] + x_dst[:, None], SLOPE)
    return (bent * attention).sum(-1)


def inputs_gat(heads: int, width: int, dtype: torch.dtype) -> list[Tensor]:
    return [
        normal(COLS, heads, width, seed=1, dtype=dtype),
        3 * normal(COLS, heads, seed=2, dtype=dtype),
        normal(ROWS, heads, seed=3, dtype=dtype),
    ]


def inputs_gatv2(heads: int, width: int, dtype: torch.dtype) -> list[Tensor]:
    return [
        normal(COLS, heads, width, seed=1, dtype=dtype),
        normal(ROWS, heads, width, seed=2, dtype=dtype),
        normal(heads, width, seed=3, dtype=dtype) / width**0.5,
    ]


KINDS = {
    "gat": (inputs_gat, scores_gat, gat_forward, gat_backward),
    "gatv2": (inputs_gatv2, scores_gatv2, gatv2_forward, gatv2_backward),
    "gat by torch": (
        inputs_gat,
        scores_gat,
        by_torch(gat_forward_torch),
        back_by_torch(gat_backward_torch, 2),
    ),
    "gatv2 by torch": (
        inputs_gatv2,
        scores_gatv2,
        by_torch(gatv2_forward_torch),
        back_by_torch(gatv2_backward_torch, 1),
    ),
}


def dense_attention(dense: Tensor, scores: Tensor, x: Tensor, keep: Tensor) -> Tensor:
    there = (dense != 0)[..., None]
    weights = torch.softmax(torch.where(there, scores, -torch.inf), dim=1)
    weights = torch.where(there, weights, 0.0)  # rows without neighbours
    return torch.einsum("ijh,jhd->ihd", weights * keep, x)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("kind", KINDS)
def test_forward_and_backward_against_dense(
    kind: str, p: float, dtype: torch.dtype, tolerance: float
) -> None:
    make, score, forward, backward = KINDS[kind]
    dense = random_dense(ROWS, COLS, 0, dtype=dtype)
    ids = torch.randperm(COLS, generator=torch.Generator().manual_seed(0)) + 10**9
    key = dropout_key(1, 2, 3)
    for heads, width in SHAPES:
        keep = torch.ones(ROWS, COLS, heads, dtype=dtype)
        if p:
            ends = torch.meshgrid(torch.arange(ROWS) + 500, ids, indexing="ij")
            keep = edge_hash_mask(p, key, *(end.flatten() for end in ends), heads).to(dtype)
            keep = keep.view(ROWS, COLS, heads) / (1 - p)
        inputs = [value.requires_grad_() for value in make(heads, width, dtype)]
        expected = dense_attention(dense, score(*inputs), inputs[0], keep)
        grad = normal(ROWS, heads, width, seed=9, dtype=dtype)
        expected.backward(grad)
        gradients = [value.grad for value in inputs]
        values = [value.detach() for value in inputs]

        # one matrix, then two that share its columns
        for cuts in ((0, COLS), (0, 61, COLS), (0, 0, COLS)):
            parts = []
            for a, b in pairwise(cuts):
                drop = EdgeDropout(p=p, key=key, destinations=500, sources=ids[a:b]) if p else None
                own = [value[a:b] if len(value) == COLS else value for value in values]
                parts.append((csr(dense[:, a:b]), own, drop))
            state = None
            for matrix, own, drop in parts:
                state = forward(matrix, *own, slope=SLOPE, dropout=drop, state=state)
            shift, out = state.shift(), state.finish()
            torch.testing.assert_close(out, expected.detach(), rtol=0, atol=tolerance)
            delta = attention_delta(grad, out)
            grad_dst, of_sources, of_attention = None, [], []
            for matrix, own, drop in parts:
                grads = backward(
                    matrix, grad, *own, shift, delta, slope=SLOPE, dropout=drop, grad_dst=grad_dst
                )
                if kind.startswith("gatv2"):
                    grad_x, grad_dst, grad_attention = grads
                    of_sources.append([grad_x])
                    of_attention.append(grad_attention)
                else:
                    grad_x, grad_src, grad_dst = grads
                    of_sources.append([grad_x, grad_src])
            found = [torch.cat(pieces) for pieces in zip(*of_sources, strict=True)]
            found += [grad_dst, sum(of_attention)] if of_attention else [grad_dst]
            for one, other in zip(found, gradients, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=4 * tolerance)


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_large_scores_do_not_overflow(kind: str) -> None:
    make, score, forward, _ = KINDS[kind]
    dense = random_dense(ROWS, COLS, 0)
    inputs = make(2, 8, torch.float64)
    for at in (1, 2):
        inputs[at] = inputs[at] * 1e4
    expected = dense_attention(
        dense, score(*inputs), inputs[0], torch.ones(ROWS, COLS, 2, dtype=torch.float64)
    )
    out = forward(csr(dense), *inputs, slope=SLOPE).finish()
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_rows_without_neighbours_give_nothing(kind: str) -> None:
    make, _, forward, backward = KINDS[kind]
    inputs = make(2, 8, torch.float64)
    matrix = csr(torch.zeros(ROWS, COLS))
    state = forward(matrix, *inputs, slope=SLOPE)
    shift, out = state.shift(), state.finish()
    assert (out == 0).all()
    grad = normal(ROWS, 2, 8)
    for gradient in backward(matrix, grad, *inputs, shift, attention_delta(grad, out)):
        assert (gradient == 0).all()


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_same_bits_on_any_number_of_threads(kind: str) -> None:
    make, _, forward, backward = KINDS[kind]
    before = torch.get_num_threads()
    generator = np.random.default_rng(0)
    dense = torch.from_numpy((generator.random((3000, COLS)) < 0.1).astype(np.float32))
    inputs = make(2, 40, torch.float32)
    index = 2 if kind == "gat" else 1
    inputs[index] = normal(3000, *inputs[index].shape[1:], dtype=torch.float32)
    drop = EdgeDropout(p=0.3, key=1, destinations=0, sources=0)
    grad = normal(3000, 2, 40, dtype=torch.float32)
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        matrix = csr(dense)
        state = forward(matrix, *inputs, dropout=drop)
        shift, out = state.shift(), state.finish()
        delta = attention_delta(grad, out)
        results.append((out, *backward(matrix, grad, *inputs, shift, delta, dropout=drop)))
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_refuses_what_does_not_fit() -> None:
    matrix = csr(random_dense(ROWS, COLS, 0))
    x, score_src, score_dst = inputs_gat(2, 8, torch.float64)
    with pytest.raises(ValueError, match=r"heads, D\]"):
        gat_forward(matrix, x.flatten(1), score_src, score_dst)
    with pytest.raises(ValueError, match="score_dst"):
        gat_forward(matrix, x, score_src, score_src)
    with pytest.raises(ValueError, match="score_src"):
        gat_forward(matrix, x, score_src.float(), score_dst)
    with pytest.raises(ValueError, match="leaves nothing"):
        drop = EdgeDropout(p=1.0, key=0, destinations=0, sources=0)
        gat_forward(matrix, x, score_src, score_dst, dropout=drop)
    with pytest.raises(ValueError, match="attention"):
        gatv2_forward(matrix, x, normal(ROWS, 2, 8), normal(2, 9))


@njit
def _exponentials(x: Any, out: Any) -> None:
    unit = 64 // x.itemsize
    for place in range(0, len(x), unit):
        store(out, place, exponential(load(x, place, 1)))


@pytest.mark.parametrize(("dtype", "least"), [(np.float32, -87.0), (np.float64, -708.0)])
def test_exponential_to_two_units_in_the_last_place(dtype: type, least: float) -> None:
    x = np.concatenate([np.linspace(least, 0, 1 << 15), -np.logspace(-12, 1, 1 << 15)])
    x = x.astype(dtype)
    out = np.empty_like(x)
    _exponentials(x, out)
    exact = np.exp(x.astype(np.longdouble))
    assert np.max(np.abs(out - exact) / np.spacing(np.exp(x))) < 2
    special = np.array([-np.inf, np.nan, least * 2, -0.0] * 4, dtype)
    out = np.empty_like(special)
    _exponentials(special, out)
    np.testing.assert_array_equal(out[:4], [0.0, np.nan, 0.0, 1.0])
