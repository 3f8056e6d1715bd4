"""A profile of a few steady epochs: a Chrome trace a rank, and where their time goes.

torch.profiler records operators and our marked ranges (`gnndist.ranges`) in epochs 3 to 5 of a
training (fewer where there are fewer), so that the others run as they always do.

When an exchange arrives is not in such a trace: gloo tells only whoever waits. So during profiled
epochs another thread waits for each exchange and reads the clock when it has arrived, while the
rank goes on; the rank then waits for that thread. (It needs the interpreter only for a moment: the
wait, the kernels and torch's operators all run without its lock.) On a GPU the kernels of the
exchange are in the trace, and no thread is needed.
"""

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from gnndist.comm import Comm, Meter, Pending, Reduction
from gnndist.ranges import EPOCH, POST, REDUCE, WAIT
from gnndist.training.breakdown import EpochParts, Interval, epoch_parts

WARM_UP, PROFILED = 2, 3
"""epochs that are let pass, and epochs that are profiled"""
WATCHERS = 4
"""exchanges that can be watched at a time"""


@dataclass(kw_only=True)
class Flight:
    """One exchange on its way."""

    size: int
    """bytes sent from here"""
    seconds: float = 0.0
    """from handing the messages over until all have arrived and the sent buffers are free"""


class Profile:
    """The profile of one rank of a job."""

    def __init__(self, comm: Comm, device: torch.device, epochs: int) -> None:
        self.comm = ProfiledComm(comm)
        """what the training must communicate through"""
        self._inner = comm
        self._device = device
        self._epochs = epochs
        self._seen = 0
        self._profiler: profile | None = None
        self._running = False

    @contextmanager
    def epoch(self, number: int) -> Iterator[None]:
        """Around the step of epoch `number`; starts and stops the profiler when it is time."""
        left = self._epochs - number + 1 + self._seen
        warm_up = min(WARM_UP, left - 1)
        last = min(warm_up + PROFILED, left)
        self._seen += 1
        if not warm_up < self._seen <= last:
            yield
            return
        if self._profiler is None:
            self._start()
        with record_function(f"{EPOCH} {number}"):
            yield
        if self._seen == last:
            self._stop()

    def finish(self, folder: Path) -> list[list[EpochParts]]:
        """Write this rank's trace to `folder`; every rank's epochs. Every rank must call this."""
        self._stop()
        mine: list[EpochParts] = []
        if self._profiler is not None:
            mine = self._write(folder)
        return self._inner.all_gather(mine)

    def _start(self) -> None:
        # Its start and stop would otherwise be told on standard error, once a rank.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(activities=activities, acc_events=True)
        self.comm.watch(self._device.type == "cpu")
        self._profiler.start()
        self._running = True

    def _stop(self) -> None:
        if self._profiler is not None and self._running:
            self._running = False
            self.comm.watch(False)
            self._profiler.stop()

    def _write(self, folder: Path) -> list[EpochParts]:
        assert self._profiler is not None
        folder.mkdir(parents=True, exist_ok=True)
        rank = self._inner.rank
        partial = folder / f".rank-{rank}.json.partial"
        self._profiler.export_chrome_trace(str(partial))
        trace = json.loads(partial.read_text())
        events = list(_nested(trace["traceEvents"]))
        flights = _in_flight(events, self.comm.flights)
        parts = epoch_parts(events, flights)
        events += _flight_events(flights, self.comm.flights)
        for event in events:
            if event["name"] == "process_name" and event["pid"] == os.getpid():
                event["args"] = {"name": f"rank {rank}"}
        trace |= {"traceEvents": events, "traceName": f"rank {rank}"}
        partial.write_text(json.dumps(trace))
        partial.replace(folder / f"rank-{rank}.json")
        return parts


def _nested(events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The events, with those that do not nest in their thread's others as tracks of their own.

    A message's range ends when it has been waited for, long after the call that it began in; a
    viewer would leave it out.
    """
    for index, event in enumerate(events):
        if event["name"] not in ("gloo:send", "gloo:recv") or "dur" not in event:
            yield event
            continue
        common = {key: event[key] for key in ("name", "pid", "tid")}
        common |= {"cat": "message", "id": index}
        yield {**common, "ph": "b", "ts": event["ts"], "args": event.get("args", {})}
        yield {**common, "ph": "e", "ts": event["ts"] + event["dur"]}


def _in_flight(events: Sequence[dict[str, Any]], flights: Sequence[Flight]) -> list[Interval]:
    """When each exchange was on its way: it left with its POST range, in order."""
    posts = sorted(float(e["ts"]) for e in events if e["name"] == POST and "dur" in e)
    return [
        (post, post + 1e6 * flight.seconds)
        for post, flight in zip(posts, flights, strict=False)
        if flight.seconds > 0
    ]


def _flight_events(
    intervals: Sequence[Interval], flights: Sequence[Flight]
) -> list[dict[str, Any]]:
    """The exchanges as a track of their own."""
    events = []
    for index, ((begin, end), flight) in enumerate(zip(intervals, flights, strict=False)):
        common = {"cat": "exchange", "id": index, "name": "exchange in flight"}
        common |= {"pid": os.getpid(), "tid": os.getpid()}
        events += [
            {**common, "ph": "b", "ts": begin, "args": {"bytes sent": flight.size}},
            {**common, "ph": "e", "ts": end},
        ]
    return events


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
