"""What each operation of a training step costs, in seconds of one core of this machine."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gnndist.inspection.edge_kernels import relative_cost
from gnndist.inspection.locality import Locality
from gnndist.inspection.operations import Gather, Product, RankSizes, Size, Stream, total
from gnndist.inspection.rates import Rates
from gnndist.inspection.wire import Wire

Seconds = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class WorkCosts:
    """Measured rates of computation, put together for one model on one graph."""

    rates: Rates
    locality: Locality
    dtype: torch.dtype

    def of(
        self, op: Product | Gather | Stream, sizes: RankSizes, crowd: Seconds
    ) -> tuple[str, Seconds]:
        """Kind of work, and [ranks] seconds of a core.

        `crowd` [ranks]: how many ranks share a core, and its caches: what one of them works on is
        no nearer than if it were so many times as large.
        """
        if isinstance(op, Product):
            return "dense", self._product(op, sizes)
        if isinstance(op, Gather):
            return "sparse", self._gather(op, sizes, crowd)
        return "elementwise", self._stream(op, sizes, crowd)

    def _product(self, op: Product, sizes: RankSizes) -> Seconds:
        if op.rows is None:
            return np.zeros(sizes.ranks)
        each: float = self.rates.product(op.k, op.n, inner=op.inner, dtype=self.dtype)
        seconds: Seconds = op.flops * each * op.rows.of(sizes)
        return seconds

    def _gather(self, op: Gather, sizes: RankSizes, crowd: Seconds) -> Seconds:
        if op.entries is None:
            return np.zeros(sizes.ranks)
        width = max(op.heads * op.width * op.itemsize // 4, 1)
        entries = op.entries.of(sizes)
        table, rows = _size(op.table, sizes), _size(op.rows, sizes)
        seconds: Seconds = entries * self.locality.entry(width, table * crowd)
        seconds += np.minimum(rows, entries) * self.locality.row(width)
        seconds *= relative_cost(self.rates, op.kernel, op.heads, op.width)
        return seconds

    def _stream(self, op: Stream, sizes: RankSizes, crowd: Seconds) -> Seconds:
        # What does not grow with the graph is part of the overhead.
        traffic = total({**op.traffic, None: 0.0}, sizes)
        arrays = 2 if op.fused else 3
        return traffic * self.rates.stream(traffic * crowd / arrays, fused=op.fused)


@dataclass(frozen=True, kw_only=True)
class Costs(WorkCosts):
    """And of what ranks do besides."""

    wire: Wire
    overhead_s: float
    """seconds of a whole step on next to no vertices: Python, dispatch, the optimiser"""

    @property
    def cores(self) -> int:
        """of a host"""
        return self.rates.cores

    def transport(self, pairs: NDArray[np.int64], message_bytes: int) -> Seconds:
        """[ranks] seconds of an exchange's own work, sending and receiving."""
        messages = (pairs > 0).sum(axis=0) + (pairs > 0).sum(axis=1)
        moved = (pairs.sum(axis=0) + pairs.sum(axis=1)) * message_bytes
        calls: Seconds = self.wire.core_s_per_message * np.maximum(messages - 2.0, 0.0)
        calls += np.where(messages > 0, self.wire.core_s_per_exchange, 0.0)
        calls += self.wire.core_s_per_byte * moved
        return calls


def _size(size: Size | None, sizes: RankSizes) -> NDArray[np.float64]:
    return np.zeros(sizes.ranks) if size is None else size.of(sizes)
