"""Memory that is used again: the same large buffers epoch after epoch.

A large array from the allocator is new pages that fault in one by one, every epoch. A pool keeps
them. It hands out a tensor over a numpy array; the tensor, its views and whatever autograd saves
all hold a reference to the array, so a buffer is free again exactly when the pool's own reference
is the last. (numpy also asks for huge pages, where the system grants them on request.)
"""

import ctypes
import math
import sys
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SMALLEST = 1 << 16
"""bytes; the allocator is good at anything smaller"""
NUMPY: Mapping[torch.dtype, type] = {torch.float32: np.float32, torch.float64: np.float64}
ONLY_OURS = 2
"""references to an array that is in the pool's list and an argument of getrefcount"""


class BufferPool:
    """Uninitialised tensors on the CPU, their memory used again once nobody holds them."""

    def __init__(self) -> None:
        self._arrays: list[NDArray[np.uint8]] = []

    @property
    def nbytes(self) -> int:
        """Bytes that the pool holds, in use or not."""
        return sum(array.nbytes for array in self._arrays)

    def empty(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> Tensor:
        """An uninitialised contiguous tensor, as torch.empty gives."""
        nbytes = math.prod(shape) * dtype.itemsize
        pooled = torch.device(device).type == "cpu" and nbytes >= SMALLEST and dtype in NUMPY
        if not pooled:
            return torch.empty(shape, dtype=dtype, device=device)
        # Cut to shape in numpy: for torch the tensor is then no view, and may be changed in place.
        return torch.from_numpy(self._take(nbytes)[:nbytes].view(NUMPY[dtype]).reshape(shape))

    def like(self, tensor: Tensor) -> Tensor:
        """An uninitialised tensor of the same shape."""
        return self.empty(tuple(tensor.shape), tensor.dtype, tensor.device)

    def _take(self, nbytes: int) -> NDArray[np.uint8]:
        """The free array that fits best, wasting at most a quarter; else a new one."""
        best = -1
        for at in range(len(self._arrays)):
            size = self._arrays[at].nbytes
            free = sys.getrefcount(self._arrays[at]) == ONLY_OURS
            fits = nbytes <= size <= 1.25 * nbytes
            if free and fits and (best < 0 or size < self._arrays[best].nbytes):
                best = at
        if best < 0:
            self._arrays.append(np.empty(nbytes, np.uint8))
            best = len(self._arrays) - 1
        return self._arrays[best]


def give_back_free_memory() -> None:
    """Return to the system what the C library keeps of freed memory, where it is glibc.

    For the moment after planning: what it took in small pieces is not asked for again.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
