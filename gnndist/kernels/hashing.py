"""Dropout masks as a pure function: no generator state, no stored mask, no rank count in them.

Whether an element is kept depends on (key, global vertex id, feature index) alone; for attention
on (key, destination's and source's global ids, head). Two steps, both counter-based:

- (key, id) → two 32-bit words, by SplitMix64's finaliser (Steele, Lea & Flood, "Fast splittable
  pseudorandom number generators", OOPSLA 2014);
- (words, feature) → 32 bits, by two rounds of a multiply-xorshift hash; the second word enters
  between the rounds, so that no two vertices' masks are shifted copies of each other.

An element is kept where its 32 bits are at least p · 2³². This module holds the definition in
torch, for any device; `gnndist.kernels.vector.drop` is the same in registers.
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
MIX1, MIX2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
STEP32, ROUND1, ROUND2 = 0x9E3779B9, 0x7FEB352D, 0x846CA68B
WORD, LONG = 2**32 - 1, 2**64 - 1


def mix64(value: int) -> int:
    """SplitMix64's finaliser on Python integers modulo 2⁶⁴."""
    value &= LONG
    value = (value ^ (value >> 30)) * MIX1 & LONG
    value = (value ^ (value >> 27)) * MIX2 & LONG
    return value ^ (value >> 31)


def dropout_key(seed: int, epoch: int, layer: int) -> int:
    """The 64-bit key of one dropout in one epoch; give each dropout of a model its own `layer`."""
    key = 0
    for part in (seed, epoch, layer):
        key = mix64((key ^ (part & LONG)) + GOLDEN)
    return key


def threshold(p: float) -> int:
    """The smallest 32-bit hash that is kept at dropout probability `p` < 1.

    Raises ValueError where p is not a probability.
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout p = {p}; a probability in 0 … 1 is needed")
    return min(round(p * 2**32), WORD)


@njit(inline="always")  # type: ignore[untyped-decorator]
def hash_id(key: np.uint64, number: np.int64) -> np.uint64:
    """64 bits from a key and a global id: the two words, or the key of a second id."""
    value = key + np.uint64(number) * np.uint64(GOLDEN)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(MIX1)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(MIX2)
    return value ^ (value >> np.uint64(31))


@njit(inline="always")  # type: ignore[untyped-decorator]
def hash_word(words: np.uint64, feature: np.int64) -> np.uint32:
    """32 bits from an id's words and a feature (or head)."""
    value = np.uint32(words) + np.uint32(feature) * np.uint32(STEP32)
    value = np.uint32(value)
    value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(ROUND1))
    value = np.uint32(value ^ (value >> np.uint32(15)) ^ np.uint32(words >> np.uint64(32)))
    value = np.uint32(value * np.uint32(ROUND2))
    return np.uint32(value ^ (value >> np.uint32(16)))


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _shift(value: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def hash_ids(key: int | Tensor, ids: Tensor) -> Tensor:
    """64 bits (as int64) of each global id; `key` an int or int64 tensor of the ids' shape."""
    value = ids * _signed(GOLDEN) + (_signed(key) if isinstance(key, int) else key)
    value = (value ^ _shift(value, 30)) * _signed(MIX1)
    value = (value ^ _shift(value, 27)) * _signed(MIX2)
    return value ^ _shift(value, 31)


def hash_words(words: Tensor, width: int) -> Tensor:
    """32 bits (as int64) [n, width] from int64 words [n]."""
    features = torch.arange(width, device=words.device) * STEP32
    value = ((words & WORD)[:, None] + features) & WORD
    value = ((value ^ (value >> 16)) * ROUND1) & WORD
    value = value ^ (value >> 15) ^ _shift(words, 32)[:, None]
    value = (value * ROUND2) & WORD
    return value ^ (value >> 16)


def global_ids(rows: int | Tensor, count: int, device: torch.device) -> Tensor:
    """int64 [count] global ids from the start of a run or from the ids themselves.

    Raises ValueError where there are not `count` of them.
    """
    if isinstance(rows, int):
        return torch.arange(rows, rows + count, device=device)
    if rows.shape != (count,) or rows.dtype != torch.int64:
        raise ValueError(
            f"rows: {rows.dtype} {tuple(rows.shape)}; the first global id or int64 [{count}] needed"
        )
    return rows.to(device)


def hash_mask(
    p: float,
    key: int,
    rows: int | Tensor,
    count: int,
    width: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """bool [count, width]: which features of which vertices are kept."""
    least = threshold(p)
    if p == 1.0:
        return torch.zeros(count, width, dtype=torch.bool, device=device)
    return hash_words(hash_ids(key, global_ids(rows, count, torch.device(device))), width) >= least


def edge_hash_mask(
    p: float, key: int, destinations: Tensor, sources: Tensor, heads: int = 1
) -> Tensor:
    """bool [E, heads]: which edges are kept, from their ends' global ids, int64 [E] each."""
    least = threshold(p)
    if p == 1.0:
        return torch.zeros(len(sources), heads, dtype=torch.bool, device=sources.device)
    return hash_words(hash_ids(hash_ids(key, destinations), sources), heads) >= least
