"""A profile of a few steady epochs: a Chrome trace a rank, and where their time goes.

torch.profiler records operators and our marked ranges (`gnndist.ranges`) in epochs 3 to 5 of a
training (fewer where there are fewer), so that the others run as they always do.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import profile, record_function

from gnndist.comm import Comm
from gnndist.device import is_gpu, profiler_activities
from gnndist.ranges import EPOCH, POST
from gnndist.training.breakdown import EpochParts, Interval, epoch_parts
from gnndist.training.profiled_comm import Flight, ProfiledComm

WARM_UP, PROFILED = 2, 3
"""epochs that are let pass, and epochs that are profiled"""


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
        self._profiler = profile(activities=profiler_activities(self._device), acc_events=True)
        self.comm.watch(not is_gpu(self._device))
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
