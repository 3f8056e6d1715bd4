"""Ranks talking to each other: point-to-point messages, sums, and small objects.

A `Comm` knows no graph. `ProcessComm` is torch.distributed (gloo and NCCL alike: one transport, no
branches on the backend); `SingleComm` is one rank alone and needs no process group.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch.distributed as dist
from torch import Tensor

Reduction = Literal["sum", "max"]


@dataclass(kw_only=True)
class Meter:
    """What this rank's communication has cost since the meter was last read."""

    bytes_sent: int = 0
    """payload this rank has sent in exchanges"""
    messages_sent: int = 0
    """point-to-point sends"""
    bytes_to: dict[int, int] = field(default_factory=dict)
    """payload by receiving rank"""
    wait_s: float = 0.0
    """seconds blocked until an exchange arrived"""
    reduce_s: float = 0.0
    """seconds in all-reduces (the gradients' and the batch norms')"""

    def sent(self, peer: int, size: int) -> None:
        """Note one message of `size` bytes to rank `peer`."""
        self.bytes_sent += size
        self.messages_sent += 1
        self.bytes_to[peer] = self.bytes_to.get(peer, 0) + size

    def take(self) -> "Meter":
        """The reading so far; starts again from zero."""
        reading = Meter(**vars(self))
        self.bytes_to = {}
        self.bytes_sent = self.messages_sent = 0
        self.wait_s = self.reduce_s = 0.0
        return reading


class Pending(Protocol):
    """Messages on their way."""

    def wait(self) -> None:
        """Return once everything has been received and the sent buffers are free again."""


class Comm(Protocol):
    """What the ranks of a job share."""

    @property
    def rank(self) -> int: ...
    @property
    def world(self) -> int: ...
    @property
    def meter(self) -> Meter: ...

    def start(self, sends: Sequence[Tensor], receives: Sequence[Tensor]) -> Pending:
        """Begin sending ``sends[q]`` to each rank q and receiving ``receives[q]`` from it.

        Both are indexed by rank; empty tensors mean no message. All are contiguous.
        """

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        """Replace `tensor` by its sum (or maximum) over ranks, on every rank."""

    def all_gather(self, value: Any) -> list[Any]:
        """Every rank's `value` (a small picklable object), by rank."""

    def swap(self, values: Sequence[Any]) -> list[Any]:
        """Send ``values[q]`` to each rank q; return what each rank sent here, by rank."""


class _Done:
    def wait(self) -> None:
        """Nothing is on its way."""


class SingleComm:
    """One rank alone."""

    rank = 0
    world = 1

    def __init__(self) -> None:
        self.meter = Meter()

    def start(self, sends: Sequence[Tensor], receives: Sequence[Tensor]) -> Pending:
        return _Done()

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        """The sum over one rank is the tensor itself."""

    def all_gather(self, value: Any) -> list[Any]:
        return [value]

    def swap(self, values: Sequence[Any]) -> list[Any]:
        return list(values)


class ProcessComm:
    """The ranks of torch.distributed's default process group."""

    def __init__(self) -> None:
        self.rank: int = dist.get_rank()
        self.world: int = dist.get_world_size()
        self.meter = Meter()

    def start(self, sends: Sequence[Tensor], receives: Sequence[Tensor]) -> Pending:
        operations = [
            dist.P2POp(dist.irecv, tensor, peer)
            for peer, tensor in enumerate(receives)
            if tensor.numel()
        ]
        for peer, tensor in enumerate(sends):
            if tensor.numel():
                operations.append(dist.P2POp(dist.isend, tensor, peer))
                self.meter.sent(peer, tensor.nbytes)
        works = dist.batch_isend_irecv(operations) if operations else []
        # The closure keeps the buffers alive until they have been sent.
        return _Works([work.wait for work in works], self.meter, [*sends, *receives])

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        start = time.perf_counter()
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM if op == "sum" else dist.ReduceOp.MAX)
        self.meter.reduce_s += time.perf_counter() - start

    def all_gather(self, value: Any) -> list[Any]:
        gathered: list[Any] = [None] * self.world
        dist.all_gather_object(gathered, value)
        return gathered

    def swap(self, values: Sequence[Any]) -> list[Any]:
        received: list[Any] = []
        for root in range(self.world):
            mine: list[Any] = [None]
            dist.scatter_object_list(mine, list(values) if root == self.rank else None, src=root)
            received.append(mine[0])
        return received


class _Works:
    def __init__(
        self, waits: list[Callable[[], Any]], meter: Meter, buffers: Sequence[Tensor]
    ) -> None:
        self._waits = waits
        self._meter = meter
        self._buffers = buffers

    def wait(self) -> None:
        start = time.perf_counter()
        for wait in self._waits:
            wait()
        self._meter.wait_s += time.perf_counter() - start
        self._waits, self._buffers = [], ()  # waiting twice on one gloo receive hangs
