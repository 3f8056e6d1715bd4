"""Ranks as threads of one process: their exchange is a copy between buffers."""

import ast
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from torch import Tensor

from gnndist.comm import Comm, Meter, Pending, Reduction

T = TypeVar("T")
TIMEOUT_S = 60


class _Meeting:
    """What the ranks share."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks, timeout=TIMEOUT_S)
        self.slots: list[Any] = [None] * ranks
        self.mail: dict[tuple[int, int], queue.Queue[Tensor]] = {
            (a, b): queue.Queue() for a in range(ranks) for b in range(ranks)
        }


class _Arrivals:
    def __init__(self, meeting: _Meeting, rank: int, receives: Sequence[Tensor]) -> None:
        self._meeting, self._rank, self._receives = meeting, rank, receives

    def wait(self) -> None:
        for peer, buffer in enumerate(self._receives):
            if buffer.numel():
                buffer.copy_(self._meeting.mail[peer, self._rank].get(timeout=TIMEOUT_S))
        self._receives = ()


class ThreadComm:
    """One of several ranks in this process."""

    def __init__(self, meeting: _Meeting, rank: int) -> None:
        self._meeting = meeting
        self.rank = rank
        self.world = len(meeting.slots)
        self.meter = Meter()

    def start(self, sends: Sequence[Tensor], receives: Sequence[Tensor]) -> Pending:
        for peer, tensor in enumerate(sends):
            if tensor.numel():
                self._meeting.mail[self.rank, peer].put(tensor.clone())
                self.meter.sent(peer, tensor.nbytes)
        return _Arrivals(self._meeting, self.rank, receives)

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        parts = torch.stack(self.all_gather(tensor.clone()))
        tensor.copy_(parts.sum(0) if op == "sum" else parts.amax(0))

    def all_gather(self, value: Any) -> list[Any]:
        self._meeting.slots[self.rank] = value
        self._meeting.barrier.wait()
        gathered = list(self._meeting.slots)
        self._meeting.barrier.wait()
        return gathered

    def swap(self, values: Sequence[Any]) -> list[Any]:
        return [row[self.rank] for row in self.all_gather(list(values))]


@contextmanager
def parsing_alone() -> Iterator[None]:
    """``ast.parse``, as NumPy reads an array's header, for one thread at a time: before CPython
    3.11.8 two at once may end in a SystemError (python/cpython#106905)."""
    turn, parse = threading.RLock(), ast.parse

    def alone(*args: Any, **options: Any) -> Any:
        with turn:
            return parse(*args, **options)

    with patch.object(ast, "parse", alone):
        yield


def run_threads(work: Callable[[Comm], T], ranks: int) -> list[T]:
    """``work(comm)`` on every rank; what each returned, by rank.

    Raises what the first rank that failed raised.
    """
    meeting = _Meeting(ranks)

    def run(rank: int) -> T:
        try:
            return work(ThreadComm(meeting, rank))
        except BaseException:
            meeting.barrier.abort()
            raise

    with parsing_alone(), ThreadPoolExecutor(ranks) as pool:
        futures = [pool.submit(run, rank) for rank in range(ranks)]
    failures = [error for future in futures if (error := future.exception()) is not None]
    # A rank that fails breaks the others' barrier: raise the cause, not the consequence.
    failures.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError | queue.Empty))
    if failures:
        raise failures[0]
    return [future.result() for future in futures]
