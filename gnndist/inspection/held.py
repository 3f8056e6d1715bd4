"""The arrays that objects hold on to, whoever made them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from gnndist.buffers import BufferPool


class Held(NamedTuple):
    """An array."""

    length: int
    """of its first axis"""
    nbytes: int
    address: int


def held_arrays(*roots: object) -> Iterator[Held]:
    """Every numpy array and tensor that the objects hold, through attributes and containers.

    Each piece of memory is given once; attributes of this package's own classes are followed.
    Buffers for activations are left out: whoever counts tensors has counted them.
    """
    seen: set[int] = set()
    memory: set[int] = set()
    waiting = list(roots)
    while waiting:
        item: Any = waiting.pop()
        if id(item) in seen or isinstance(item, BufferPool):
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray | Tensor):
            held = _held(item)
            if held.nbytes and held.address not in memory:
                memory.add(held.address)
                yield held
        elif isinstance(item, Mapping):
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif type(item).__module__.startswith("gnndist.") and hasattr(item, "__dict__"):
            waiting.extend(vars(item).values())


def _held(array: Any) -> Held:
    if isinstance(array, Tensor):
        return Held(len(array) if array.dim() else 1, array.nbytes, array.data_ptr())
    whole = array if array.base is None or not isinstance(array.base, np.ndarray) else array.base
    address = int(whole.__array_interface__["data"][0])
    return Held(len(whole) if whole.ndim else 1, whole.nbytes, address)
