"""Dropout by hash: its definition, its statistics, and the fused passes over it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_matrices import FLOATS, normal, strided

from gnndist.kernels import (
    bias_relu_dropout,
    bias_relu_dropout_backward,
    dropout_key,
    edge_hash_mask,
    hash_dropout,
    hash_mask,
)
from gnndist.kernels.hashing import hash_id, hash_word, mix64

KEY = dropout_key(7, 3, 1)


def python_word(key: int, number: int, feature: int) -> int:
    """The hash as the module's docstring has it, on Python's own integers."""
    words = mix64(key + number * 0x9E3779B97F4A7C15)
    h = (words + feature * 0x9E3779B9) % 2**32
    h = (h ^ h >> 16) * 0x7FEB352D % 2**32
    h = h ^ h >> 15 ^ words >> 32
    h = h * 0x846CA68B % 2**32
    return h ^ h >> 16


def test_the_mask_is_the_definition() -> None:
    ids = [0, 1, 5, 2**31, 2**40 + 3, 2**62]
    mask = hash_mask(0.3, KEY, torch.tensor(ids), len(ids), 40)
    for row, number in enumerate(ids):
        hashes = [python_word(KEY, number, feature) for feature in range(40)]
        assert mask[row].tolist() == [h >= round(0.3 * 2**32) for h in hashes]
        words = np.uint64(hash_id(np.uint64(KEY), number))
        assert [int(hash_word(words, f)) for f in range(40)] == hashes


def test_the_mask_of_an_edge_is_the_definition() -> None:
    destinations, sources = torch.tensor([0, 9, 2**40]), torch.tensor([3, 3, 2**41])
    mask = edge_hash_mask(0.5, KEY, destinations, sources, heads=5)
    for edge in range(3):
        row = mix64(KEY + int(destinations[edge]) * 0x9E3779B97F4A7C15)
        expected = [python_word(row, int(sources[edge]), head) >= 2**31 for head in range(5)]
        assert mask[edge].tolist() == expected


def test_the_mask_never_changes() -> None:
    """A checkpoint's masks must come again in every later version."""
    assert dropout_key(1, 2, 3) == 0xD0734750FDE362B3
    mask = hash_mask(0.5, dropout_key(1, 2, 3), 10, 4, 16)
    assert [int("".join(str(int(bit)) for bit in row), 2) for row in mask] == [
        27326,
        57820,
        42526,
        31323,
    ]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 40),
    st.integers(0, 80),
    st.sampled_from(FLOATS),
    st.sampled_from([0.0, 1e-12, 0.1, 0.5, 0.9, 1.0]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**40),
)
def test_fused_passes_are_the_plain_operations(
    rows: int,
    width: int,
    dtype: torch.dtype,
    p: float,
    relu: bool,
    biased: bool,
    run: bool,
    start: int,
) -> None:
    x = normal(rows, width, seed=width, dtype=dtype).requires_grad_()
    bias = normal(width, seed=1, dtype=dtype).requires_grad_()
    ids = torch.arange(start, start + rows)
    if not run:
        ids = ids.flip(0) * 3
    mask = hash_mask(p, KEY, ids, rows, width)
    value = x + bias if biased else x
    value = value.relu() if relu else value
    scale = 1 / (1 - p) if 1e-10 < p < 1 else 1.0  # a smaller p drops nothing
    expected = torch.where(mask, value * scale, 0.0)
    grad = normal(rows, width, seed=2, dtype=dtype)
    expected.backward(grad)

    plain_bias = bias.detach() if biased else None
    which = start if run else ids
    out = bias_relu_dropout(x.detach(), plain_bias, p, KEY, which, relu)
    assert torch.equal(out, expected)
    grad_x, grad_bias = bias_relu_dropout_backward(
        grad, out if relu else None, p, KEY, which, relu, need_bias=biased
    )
    assert torch.equal(grad_x, x.grad)
    if biased:
        tolerance = 1e-4 if dtype == torch.float32 else 1e-12
        torch.testing.assert_close(grad_bias, bias.grad, rtol=0, atol=tolerance)
    else:
        assert grad_bias is None


@pytest.mark.parametrize("dtype", [*FLOATS, torch.bfloat16, torch.float16])
def test_torch_operations_draw_the_same_mask(dtype: torch.dtype) -> None:
    x = torch.ones(30, 70, dtype=dtype)
    kept = hash_dropout(x, 0.4, KEY, 1000) != 0
    assert torch.equal(kept, hash_mask(0.4, KEY, 1000, 30, 70))


def test_in_place_and_strided() -> None:
    x = normal(20, 45)
    expected = hash_dropout(x, 0.5, KEY, 3)
    view = strided(x)
    assert torch.equal(hash_dropout(view, 0.5, KEY, 3), expected)
    assert hash_dropout(view, 0.5, KEY, 3, out=view) is view
    assert torch.equal(view, expected)
    assert view._base[:, 0].isnan().all()
    assert view._base[:, -2:].isnan().all()
    grad = strided(normal(20, 45, seed=1))
    plain, bias = bias_relu_dropout_backward(grad.clone(), expected, 0.5, KEY, 3)
    same, again = bias_relu_dropout_backward(grad, expected, 0.5, KEY, 3, grad_x=grad)
    assert same is grad
    assert torch.equal(grad, plain)
    assert torch.equal(bias, again)
    assert torch.equal(x, normal(20, 45))  # inputs are as they were


def test_a_part_of_the_rows_has_its_part_of_the_mask() -> None:
    x = normal(50, 33)
    whole = hash_dropout(x, 0.5, KEY, 100)
    assert torch.equal(hash_dropout(x[17:], 0.5, KEY, 117), whole[17:])
    chosen = torch.tensor([3, 44, 3])
    assert torch.equal(hash_dropout(x[chosen], 0.5, KEY, chosen + 100), whole[chosen])
    assert torch.equal(hash_dropout(x[:, :9], 0.5, KEY, 100), whole[:, :9])


def test_nothing_dropped_and_everything_dropped() -> None:
    x = normal(5, 20)
    assert hash_dropout(x, 0.0, KEY, 0) is x
    assert torch.equal(hash_dropout(x, 0.0, KEY, 0, out=torch.empty_like(x)), x)
    x[0, 0] = torch.inf
    assert torch.equal(hash_dropout(x, 1.0, KEY, 0), torch.zeros(5, 20, dtype=x.dtype))
    assert not edge_hash_mask(1.0, KEY, torch.arange(4), torch.arange(4), 2).any()
    assert edge_hash_mask(0.0, KEY, torch.arange(4), torch.arange(4), 2).all()


def test_not_a_number_is_not_hidden() -> None:
    x = torch.tensor([[torch.nan, -1.0, 2.0]])
    out = bias_relu_dropout(x, None, 0.0, KEY, 0)
    assert out.isnan().tolist() == [[True, False, False]]


@pytest.mark.parametrize("dtype", FLOATS)
def test_same_bits_on_any_number_of_threads(dtype: torch.dtype) -> None:
    before = torch.get_num_threads()
    x, bias = normal(9000, 70, dtype=dtype), normal(70, seed=1, dtype=dtype)
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        out = bias_relu_dropout(x, bias, 0.5, KEY, 0)
        results.append((out, *bias_relu_dropout_backward(x, out, 0.5, KEY, 0)))
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def agreement(a: torch.Tensor, b: torch.Tensor) -> float:
    """How far two masks' agreement is from chance, in standard deviations."""
    p = a.double().mean() * b.double().mean()
    both = (a & b).double().mean()
    return float((both - p) / (p * (1 - p) / a.numel()) ** 0.5)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_the_mask_looks_random(p: float) -> None:
    """A million bits a comparison; 5 deviations are passed by chance once in 1.7 million."""
    rows, width = 4096, 256
    mask = hash_mask(p, KEY, 0, rows, width)
    rate = mask.double()
    assert abs(float(rate.mean()) - (1 - p)) < 5 * (p * (1 - p) / mask.numel()) ** 0.5
    for mean, count in ((rate.mean(0), rows), (rate.mean(1), width)):
        spread = (mean - (1 - p)) / (p * (1 - p) / count) ** 0.5
        assert float(spread.abs().max()) < 5.5  # of every feature's, of every vertex's rate
        assert abs(float(spread.std()) - 1) < 0.2
    for lag in (1, 2, 3, 7, 16, 64, 128):
        assert abs(agreement(mask[:, lag:], mask[:, :-lag])) < 5, f"features {lag} apart"
        assert abs(agreement(mask[lag:], mask[:-lag])) < 5, f"vertices {lag} apart"
    assert abs(agreement(mask[1:, 1:], mask[:-1, :-1])) < 5
    others = [
        (seed, epoch, layer)
        for seed, epoch, layer in [(7, 4, 1), (7, 3, 2), (8, 3, 1), (7, 1, 3), (3, 7, 1), (7, 2, 2)]
    ]
    for other in others:
        again = hash_mask(p, dropout_key(*other), 0, rows, width)
        assert abs(agreement(mask, again)) < 5, f"seed, epoch, layer {other}"


def test_no_vertex_has_a_shifted_copy_of_anothers_mask() -> None:
    hashes = hash_mask(0.5, KEY, 0, 4096, 128)
    windows = hashes.unfold(1, 64, 1).flatten(0, 1)  # every run of 64 features
    packed = (windows.to(torch.int64) << torch.arange(64)).sum(1)
    assert len(packed.unique()) == len(packed)


def test_edges_look_random() -> None:
    count = 1 << 18
    destinations, sources = torch.arange(count) // 16, torch.arange(count) % 16 * 1000
    mask = edge_hash_mask(0.5, KEY, destinations, sources, 8)
    assert abs(float(mask.double().mean()) - 0.5) < 5 * 0.5 / mask.numel() ** 0.5
    assert abs(agreement(mask[:, 1:], mask[:, :-1])) < 5
    assert abs(agreement(mask[1:], mask[:-1])) < 5
    assert abs(agreement(mask[16:], mask[:-16])) < 5
    reverse = edge_hash_mask(0.5, KEY, sources, destinations, 8)
    assert abs(agreement(mask, reverse)) < 5
    features = hash_mask(0.5, KEY, destinations, count, 8)
    assert abs(agreement(mask, features)) < 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": -0.1}, "p = -0.1"),
        ({"p": 1.5}, "p = 1.5"),
        ({"p": float("nan")}, "nan"),
        ({"bias": torch.zeros(4)}, r"\(4,\)"),
        ({"bias": torch.zeros(5, dtype=torch.float64)}, "float64"),
        ({"rows": torch.arange(2)}, r"int64 \[3\]"),
        ({"rows": torch.arange(3, dtype=torch.int32)}, "int32"),
        ({"x": torch.zeros(3)}, "matrix"),
        ({"x": torch.zeros(3, 5, dtype=torch.int64)}, "int64"),
        ({"out": torch.zeros(3, 6)}, r"\(3, 6\)"),
    ],
)
def test_refuses_what_does_not_fit(change: dict[str, object], message: str) -> None:
    arguments = {"x": torch.zeros(3, 5), "bias": None, "p": 0.5, "key": KEY, "rows": 0}
    with pytest.raises(ValueError, match=message):
        bias_relu_dropout(**{**arguments, **change})  # type: ignore[arg-type]


def test_backward_with_relu_needs_the_output() -> None:
    with pytest.raises(ValueError, match="output"):
        bias_relu_dropout_backward(torch.zeros(3, 5), None, 0.5, KEY, 0)
