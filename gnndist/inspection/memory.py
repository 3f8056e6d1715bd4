"""Memory of a rank: what it holds while it loads, trains and evaluates."""

from dataclasses import dataclass

import numpy as np
import psutil

from gnndist.inspection.counts import Counts
from gnndist.inspection.network import Network
from gnndist.inspection.operations import RankSizes, StepTrace, total


@dataclass(frozen=True, kw_only=True)
class Memory:
    """[ranks] bytes."""

    tensors: Counts
    """features, activations, weights, what the optimiser keeps, at their most"""
    graph: Counts
    """adjacency, plans and sparse matrices"""
    process: int
    """of the interpreter and its libraries"""

    @property
    def rank(self) -> Counts:
        """[ranks] all together."""
        return self.tensors + self.graph + self.process

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
        graph=np.ceil(graph).astype(np.int64),
        process=process,
    )


def machine_memory() -> int:
    """Bytes of memory that this machine has."""
    return int(psutil.virtual_memory().total)
