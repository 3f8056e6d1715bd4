"""P ranks as threads of one process: the exchange is a copy between buffers.

Most exactness tests need no processes; this stands in for torch.distributed.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from gnndist.comm import Comm, Meter, SingleComm
from gnndist.inspection.threads import parsing_alone

TIMEOUT_S = 60


class _World:
    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=TIMEOUT_S)
        self.slots: list[Any] = [None] * size
        self.mail: dict[tuple[int, int], queue.Queue[Tensor | None]] = {
            (a, b): queue.Queue() for a in range(size) for b in range(size)
        }


class _Arrivals:
    def __init__(self, world: _World, rank: int, receives: Sequence[Tensor]) -> None:
        self._world, self._rank, self._receives = world, rank, receives

    def wait(self) -> None:
        for peer, buffer in enumerate(self._receives):
            if buffer.numel():
                sent = self._world.mail[peer, self._rank].get(timeout=TIMEOUT_S)
                if sent is None:
                    raise threading.BrokenBarrierError(f"rank {peer} has failed")
                assert sent.shape == buffer.shape
                buffer.copy_(sent)
        self._receives = ()


class ThreadComm:
    def __init__(self, world: _World, rank: int) -> None:
        self._world = world
        self.rank = rank
        self.world = world.size
        self.meter = Meter()

    def start(self, sends: Sequence[Tensor], receives: Sequence[Tensor]) -> _Arrivals:
        for peer, tensor in enumerate(sends):
            if tensor.numel():
                self._world.mail[self.rank, peer].put(tensor.clone())
                self.meter.sent(peer, tensor.nbytes)
        return _Arrivals(self._world, self.rank, receives)

    def all_reduce(self, tensor: Tensor, op: str = "sum") -> None:
        parts = self.all_gather(tensor.clone())
        total = torch.stack(parts).sum(0) if op == "sum" else torch.stack(parts).amax(0)
        tensor.copy_(total)

    def all_gather(self, value: Any) -> list[Any]:
        self._world.slots[self.rank] = value
        self._world.barrier.wait()
        gathered = list(self._world.slots)
        self._world.barrier.wait()
        return gathered

    def swap(self, values: Sequence[Any]) -> list[Any]:
        return [row[self.rank] for row in self.all_gather(list(values))]


def run_threads(work: Callable[..., Any], world: int, *args: Any) -> list[Any]:
    """``work(comm, *args)`` on every rank; what each returned, by rank."""
    if world == 1:
        return [work(SingleComm(), *args)]
    shared = _World(world)

    def rank(index: int) -> Any:
        try:
            comm: Comm = ThreadComm(shared, index)
            return work(comm, *args)
        except BaseException:
            shared.barrier.abort()
            for peer in range(world):
                shared.mail[index, peer].put(None)
            raise

    with parsing_alone(), ThreadPoolExecutor(world) as pool:
        futures = [pool.submit(rank, index) for index in range(world)]
    errors = [e for f in futures if (e := f.exception()) is not None]
    # A rank that failed breaks the others' barrier: raise the cause, not the consequence.
    errors.sort(key=lambda e: isinstance(e, threading.BrokenBarrierError | queue.Empty))
    if errors:
        raise errors[0]
    return [f.result() for f in futures]
