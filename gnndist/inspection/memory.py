"""Memory of a rank: what it holds while it loads, trains and evaluates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import torch

from gnndist.buffers import BufferPool
from gnndist.inspection.counts import Counts
from gnndist.inspection.network import Network
from gnndist.inspection.operations import RankSizes, StepTrace, total

POOL_BYTES = 1 << 30
MOST_POOLS = 32


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

    A pool holds more than is in use at a time. Where ranks are many, how much more is told for the
    ones that use most, and the others are taken to be like them.
    """
    bytes_of = {number: total(amount, sizes) for number, amount, _ in trace.buffers}
    now = most = np.zeros(sizes.ranks)
    for number, _, taken in trace.buffers:
        now = now + bytes_of[number] * (1 if taken else -1)
        most = np.maximum(most, now)
    largest = np.argsort(-most)[:MOST_POOLS]
    pools = np.array([_pool(trace, bytes_of, rank, most[rank]) for rank in largest])
    found = most * (pools.sum() / max(most[largest].sum(), 1.0))
    found[largest] = pools
    rounded: Counts = np.ceil(found).astype(np.int64)
    return rounded


def _pool(trace: StepTrace, bytes_of: Mapping[int, Any], rank: int, most: float) -> float:
    """Bytes that one rank's pool holds in the end."""
    # Untouched memory costs nothing, but keep the requests small.
    scale = max(most / POOL_BYTES, 1.0)
    pool, held = BufferPool(), {}
    for number, _, taken in trace.buffers:
        if taken:
            length = int(bytes_of[number][rank] / scale / 4)
            held[number] = pool.empty((length,), torch.float32)
        else:
            held.pop(number, None)
    return max(pool.nbytes * scale, most)


def machine_memory() -> int:
    """Bytes of memory that this machine has."""
    return int(psutil.virtual_memory().total)
