"""Communication as a profile sees it: its ranges marked, the arrival of exchanges noted.

When an exchange arrives is not in a profiler's trace: gloo tells only who waits. So while profiled,
another thread waits for each exchange and reads the clock when it has arrived, while the
rank goes on; the rank then waits for that thread. (It needs the interpreter only for a moment: the
wait, the kernels and torch's operators all run without its lock.) On a GPU the kernels of the
exchange are in the trace, and no thread is needed.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.profiler import record_function

from gnndist.comm import Comm, Meter, Pending, Reduction
from gnndist.ranges import POST, REDUCE, WAIT

WATCHERS = 4
"""exchanges that can be watched at a time"""


@dataclass(kw_only=True)
class Flight:
    """One exchange on its way."""

    size: int
    """bytes sent from here"""
    seconds: float = 0.0
    """from handing the messages over until all have arrived and the sent buffers are free"""


class ProfiledComm:
    """A rank's `Comm`, its waits and sums marked as ranges while an epoch is profiled.

    It keeps a meter of its own, because a thread that watches for an arrival waits on the inner
    one's behalf.
    """

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self.rank = comm.rank
        self.world = comm.world
        self.meter = Meter()
        self.flights: list[Flight] = []
        """the exchanges that were watched, in order"""
        self._watchers: Watchers | None = None

    def watch(self, yes: bool) -> None:
        """Note when exchanges arrive, from now on; or no longer."""
        if self._watchers is not None:
            self._watchers.dismiss()
        self._watchers = Watchers(WATCHERS) if yes else None

    def start(self, sends: Sequence[Tensor], receives: Sequence[Tensor]) -> Pending:
        for peer, tensor in enumerate(sends):
            if tensor.numel():
                self.meter.sent(peer, tensor.nbytes)
        begin = time.perf_counter()
        with record_function(POST):
            pending = self._comm.start(sends, receives)
            if self._watchers is not None:
                flight = Flight(size=sum(tensor.nbytes for tensor in sends))
                self.flights.append(flight)
                pending = self._watchers.watch(pending, flight, begin)
        return _Marked(pending, self.meter)

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        start = time.perf_counter()
        with record_function(REDUCE):
            self._comm.all_reduce(tensor, op)
        self.meter.reduce_s += time.perf_counter() - start

    def all_gather(self, value: Any) -> list[Any]:
        return self._comm.all_gather(value)

    def swap(self, values: Sequence[Any]) -> list[Any]:
        return self._comm.swap(values)


class _Marked:
    """Messages on their way; the wait for them is metered and marked."""

    def __init__(self, pending: Pending, meter: Meter) -> None:
        self._pending = pending
        self._meter = meter

    def wait(self) -> None:
        start = time.perf_counter()
        with record_function(WAIT):
            self._pending.wait()
        self._meter.wait_s += time.perf_counter() - start


class Watchers:
    """Threads that wait for messages on their way and note when they have arrived."""

    def __init__(self, count: int) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # Daemons: where a peer has died, nobody should have to wait for them.
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def watch(self, pending: Pending, flight: Flight, begin: float) -> Pending:
        """Let a thread wait for `pending`, which left at `begin`; what to wait for instead."""
        watched = _Watched()

        def wait() -> None:
            try:
                pending.wait()
            except BaseException as error:
                watched.error = error
            flight.seconds = time.perf_counter() - begin
            watched.arrived.set()

        self._jobs.put(wait)
        return watched

    def dismiss(self) -> None:
        """Let the threads end when nothing is on its way any more."""
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class _Watched:
    """Messages on their way, awaited by a thread."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.error: BaseException | None = None

    def wait(self) -> None:
        self.arrived.wait()
        if self.error is not None:
            raise self.error
