"""A machine of round figures and steps of given operations: predictions worked out by hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gnndist.inspection.operations import Operation, StepTrace
from gnndist.inspection.rates import Rates

FLOP_S, BYTE_S, SPARSE_S = 1e-9, 1e-10, 1e-3


@dataclass(kw_only=True)
class FixedRates(Rates):
    """Nothing is measured: 1 GFLOP/s, 10 GB/s, 1 ms a sparse product of a piece of a store."""

    cores: int = 2
    message_s: float = 0.0
    latency: float = 0.0

    def get(self, key: str, measure: Callable[[], Any]) -> Any:
        kind = key.partition(" ")[0]
        if kind == "wire":
            return {
                "latency": self.latency,
                "core_s_per_exchange": 2 * self.message_s,
                "core_s_per_message": self.message_s,
                "reduce_s": 1e-4,
                "core_s_per_byte": 0.0,
                "bandwidth": 1e9,
                "process_bytes": 1_000_000,
            }
        return {"product": FLOP_S, "stream": BYTE_S, "sparse": SPARSE_S, "kernel": 1.0}[kind]


def step_of(operations: Sequence[Operation]) -> StepTrace:
    """A step of one layer that does just these."""
    return StepTrace(
        layers=1,
        layered=False,
        operations=operations,
        once=[],
        evaluation=[],
        memory=[],
        buffers=[],
        graph_memory={},
        parameters=0,
        unexplained=[],
    )
