"""Maximum over neighbours and the even share of its gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_matrices import FLOATS, csr, normal, random_dense, strided

from gnndist.kernels import segment_max, segment_max_backward
from gnndist.kernels.segment import maximum_torch, share_torch


def reference(dense: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """By torch's own amax, which shares gradients among ties; 0 for rows without neighbours."""
    spread = torch.where((dense != 0)[:, :, None], x[None], -torch.inf)
    best = spread.amax(1) if dense.shape[1] else x.new_full((len(dense), x.shape[1]), -torch.inf)
    return torch.where(best == -torch.inf, 0.0, best)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 80),
    st.integers(0, 99),
    st.sampled_from(FLOATS),
    st.integers(0, 30),
)
def test_against_dense(
    rows: int, cols: int, width: int, seed: int, dtype: torch.dtype, cut: int
) -> None:
    dense = random_dense(rows, cols, seed, dtype=dtype)
    x = normal(cols, width, seed=seed, dtype=dtype).relu().sub(0.5)  # many ties, below 0
    x.requires_grad_()
    expected = reference(dense, x)
    grad = normal(rows, width, seed=1, dtype=dtype)
    expected.backward(grad) if x.numel() and rows else None
    given_x = x.detach()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13

    matrix = csr(dense)
    out, ties = segment_max(matrix, strided(given_x))
    assert torch.equal(out, expected)
    equal = ((dense != 0)[:, :, None] & (given_x[None] == expected[:, None])).sum(1)
    assert torch.equal(ties, equal.to(dtype))
    grad_x = segment_max_backward(matrix, grad, given_x, out, ties)
    if x.grad is not None:
        torch.testing.assert_close(grad_x, x.grad, rtol=0, atol=tolerance)

    # two matrices, one after the other, and their gradients
    cut = min(cut, cols)
    parts = [(csr(dense[:, a:b]), given_x[a:b]) for a, b in ((0, cut), (cut, cols))]
    state = None
    for part, its_x in parts:
        state = segment_max(part, its_x, state)
    assert torch.equal(state[0], out)
    assert torch.equal(state[1], ties)
    pieces = [segment_max_backward(part, grad, its_x, *state) for part, its_x in parts]
    torch.testing.assert_close(torch.cat(pieces), grad_x, rtol=0, atol=tolerance)

    # the same by torch operations
    again, again_ties = torch.empty_like(out), torch.empty_like(out)
    for number, (part, its_x) in enumerate(parts):
        maximum_torch(part, its_x, again, again_ties, fresh=number == 0)
    assert torch.equal(again, out)
    assert torch.equal(again_ties, ties)
    share = grad / ties.clamp(min=1)
    shared = share_torch(matrix, given_x, out, share, torch.empty_like(given_x), fresh=True)
    torch.testing.assert_close(shared, grad_x, rtol=0, atol=tolerance)


def test_gradients_add_up_where_asked() -> None:
    dense, x = random_dense(9, 7, 0), normal(7, 5)
    matrix = csr(dense)
    out, ties = segment_max(matrix, x)
    grad = normal(9, 5, seed=1)
    before = normal(7, 5, seed=2)
    grad_x = before.clone()
    assert segment_max_backward(matrix, grad, x, out, ties, grad_x, accumulate=True) is grad_x
    torch.testing.assert_close(grad_x, before + segment_max_backward(matrix, grad, x, out, ties))


def test_not_a_number_is_not_hidden() -> None:
    dense = torch.ones(1, 3)
    for place in range(3):
        x = torch.tensor([[1.0], [2.0], [0.0]])
        x[place] = torch.nan
        assert segment_max(csr(dense), x)[0].isnan().all()


def test_minus_infinity_is_a_value() -> None:
    x = torch.full((3, 2), -torch.inf)
    out, ties = segment_max(csr(torch.ones(1, 3)), x)
    assert out.tolist() == [[-torch.inf, -torch.inf]]
    assert ties.tolist() == [[3.0, 3.0]]


def test_same_bits_on_any_number_of_threads() -> None:
    before = torch.get_num_threads()
    matrix, x = csr(random_dense(400, 300, 5, density=0.1)), normal(300, 100)
    results = []
    for count in (1, 3):
        torch.set_num_threads(count)
        out, ties = segment_max(matrix, x)
        results.append((out, segment_max_backward(matrix, out, x, out, ties)))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_refuses_what_does_not_fit() -> None:
    matrix = csr(random_dense(9, 7, 0))
    with pytest.raises(ValueError, match=r"\[7, F\]"):
        segment_max(matrix, normal(9, 5))
    with pytest.raises(ValueError, match=r"\(9, 4\)"):
        segment_max(matrix, normal(7, 5), (normal(9, 4), normal(9, 5)))
    x = normal(7, 5)
    state = segment_max(matrix, x)
    with pytest.raises(ValueError, match=r"\[9, F\]"):
        segment_max_backward(matrix, normal(7, 5), x, *state)
    with pytest.raises(ValueError, match="accumulate needs grad_x"):
        segment_max_backward(matrix, normal(9, 5), x, *state, accumulate=True)
