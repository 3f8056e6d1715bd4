"""Memory of a rank: what it holds while it loads, trains and evaluates."""

from dataclasses import dataclass

import numpy as np
import psutil
import torch

from gnndist.buffers import BufferPool
from gnndist.inspection.counts import Counts
from gnndist.inspection.network import Network
from gnndist.inspection.operations import RankSizes, StepTrace, total

POOL_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Memory:
    """[ranks] bytes."""

    tensors: Counts
    """features, weights, what the optimiser keeps, small activations, at their most"""
    buffers: Counts
    """large activations, in memory that is used again"""
    graph: Counts
    """adjacency, plans and sparse matrices"""
    process: int
    """of the interpreter and its libraries"""

    @property
    def rank(self) -> Counts:
        """[ranks] all together."""
        return self.tensors + self.buffers + self.graph + self.process

    def host(self, network: Network) -> Counts:
        """[hosts] of all ranks on a host."""
        each = np.bincount(network.host(len(self.tensors)), weights=self.rank)
        return each.astype(np.int64)


def memory_of(trace: StepTrace, sizes: RankSizes, process: int) -> Memory:
    """From the first file read to the end of the second epoch, an evaluation included."""
    tensors = np.zeros(sizes.ranks)
    for amount in trace.memory:
        np.maximum(tensors, total(amount, sizes), out=tensors)
    graph = total(trace.graph_memory, sizes)
    return Memory(
        tensors=np.ceil(tensors).astype(np.int64),
        buffers=_buffers(trace, sizes),
        graph=np.ceil(graph).astype(np.int64),
        process=process,
    )


def _buffers(trace: StepTrace, sizes: RankSizes) -> Counts:
    """[ranks] bytes of a rank's pool: the real one, asked for the same buffers.

    A pool is not full of what is in use; how much it holds is told for the rank that uses most,
    and the others are taken to be like it.
    """
    bytes_of = {number: total(amount, sizes) for number, amount, _ in trace.buffers}
    now = most = np.zeros(sizes.ranks)
    for number, _, taken in trace.buffers:
        now = now + bytes_of[number] * (1 if taken else -1)
        most = np.maximum(most, now)
    if most.max(initial=0.0) == 0:
        return most.astype(np.int64)
    rank = int(most.argmax())
    # Untouched memory costs nothing, but keep the requests small.
    scale = max(float(most[rank]) / POOL_BYTES, 1.0)
    pool, held = BufferPool(), {}
    for number, _, taken in trace.buffers:
        if taken:
            length = int(bytes_of[number][rank] / scale / 4)
            held[number] = pool.empty((length,), torch.float32)
        else:
            held.pop(number, None)
    fullness = pool.nbytes * scale / float(most[rank])
    return np.ceil(most * max(fullness, 1.0)).astype(np.int64)


def machine_memory() -> int:
    """Bytes of memory that this machine has."""
    return int(psutil.virtual_memory().total)
