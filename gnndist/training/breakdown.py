"""Where an epoch's time goes, read off a Chrome trace.

Every instant of an epoch belongs to exactly one part, so the parts of a rank sum to its epoch's
time. On a CPU the part is that of the range the rank's main thread is in; on a GPU it is that of
the kernel that runs, computation before communication.

sparse       local products with the graph's matrices (also those that pack and add messages)
dense        matrix products
elementwise  every other operator: bias, activation, dropout, norms, loss, copies
exchange     exposed exchange: handing messages over, blocked until they have arrived
reduce       sums over ranks: gradients, loss, batch norms; waiting for the slowest rank included
optimizer    the optimiser's step
other        the interpreter, autograd between operators, and a GPU that has nothing to run

Hidden exchange is the time an exchange is in flight beside any of the other parts: it is no part
of the sum.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from gnndist import ranges
from gnndist.device_names import GPU

PARTS = {
    "sparse": "local sparse",
    "dense": "dense",
    "elementwise": "elementwise",
    "exchange": "exchange, exposed",
    "reduce": "gradient reduce",
    "optimizer": "optimiser",
    "other": "other",
}
"""part → what people read"""

Event = Mapping[str, Any]
"""one of a Chrome trace: `ph`, `cat`, `name`, `tid`, `ts` and `dur` in µs, `args`"""
Interval = tuple[float, float]
"""begin and end, in µs of a trace"""

_MARKED = {
    ranges.SPARSE: "sparse",
    ranges.ELEMENTWISE: "elementwise",
    ranges.POST: "exchange",
    ranges.WAIT: "exchange",
    ranges.REDUCE: "reduce",
}
_DENSE = {
    f"aten::{name}"
    for name in ("linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "mv", "einsum")
} | {"aten::_addmm_activation"}
_SPARSE = tuple(
    f"aten::{name}"
    for name in ("scatter", "index_add", "index_reduce", "segment", "_segment", "_sparse", "sparse")
)
_LAUNCHES = (f"{GPU}_runtime", f"{GPU}_driver")
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True, kw_only=True)
class EpochParts:
    """One epoch of one rank, in seconds."""

    epoch: int
    epoch_s: float
    parts: dict[str, float]
    """by part: they sum to `epoch_s`"""
    hidden_s: float
    """exchange in flight beside the other parts"""

    @property
    def waiting_s(self) -> float:
        """Seconds that depend on the other ranks."""
        return self.parts["exchange"] + self.parts["reduce"]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def mean_parts(epochs: Sequence[EpochParts]) -> EpochParts:
    """The mean of some epochs, under the first one's number."""
    count = len(epochs)
    return EpochParts(
        epoch=epochs[0].epoch,
        epoch_s=sum(e.epoch_s for e in epochs) / count,
        parts={part: sum(e.parts[part] for e in epochs) / count for part in PARTS},
        hidden_s=sum(e.hidden_s for e in epochs) / count,
    )


class Segment(NamedTuple):
    """A stretch of one thread's or device's time that belongs to one part."""

    begin: float
    end: float
    part: str


def epoch_parts(events: Sequence[Event], in_flight: Sequence[Interval] = ()) -> list[EpochParts]:
    """The parts of each profiled epoch of a trace.

    Parameters
    ----------
    in_flight:
        when exchanges were on their way, for a trace of the CPU; on a GPU the kernels tell.
    """
    ranged = [e for e in events if e.get("cat") in ("cpu_op", "user_annotation") and "dur" in e]
    epochs = [e for e in ranged if e["name"].startswith(ranges.EPOCH)]
    on_device = [e for e in events if e.get("cat") in _ON_DEVICE and "dur" in e]
    found = []
    for epoch in sorted(epochs, key=lambda e: float(e["ts"])):
        begin, end = _interval(epoch)
        if on_device:
            kernels = _kernels(events, ranged, on_device, (begin, end))
            segments = list(_device_segments(kernels, begin, end))
            flights = [(k.begin, k.end) for k in kernels if k.part == "exchange"]
        else:
            segments = list(_thread_segments(ranged, epoch["tid"], begin, end))
            flights = list(in_flight)
        parts = dict.fromkeys(PARTS, 0.0)
        for segment in segments:
            parts[segment.part] += (segment.end - segment.begin) / 1e6
        beside = [s for s in segments if s.part != "exchange"]
        found.append(
            EpochParts(
                epoch=int(epoch["name"].removeprefix(ranges.EPOCH)),
                epoch_s=(end - begin) / 1e6,
                parts=parts,
                hidden_s=_overlap(beside, _union(flights)) / 1e6,
            )
        )
    return found


def part_of(name: str, outer: str) -> str:
    """The part of a range or operator called `name` inside one that belongs to `outer`.

    Our own marks count wherever they are; of operators the outermost counts, so that a copy inside
    a matrix product is dense and an addition inside the optimiser is the optimiser's.
    """
    if name in _MARKED:
        return _MARKED[name]
    if outer != "other":
        return outer
    if name.startswith("Optimizer."):
        return "optimizer"
    if name in _DENSE:
        return "dense"
    if name.startswith(_SPARSE):
        return "sparse"
    return "elementwise" if name.startswith("aten::") else "other"


def _thread_segments(
    ranged: Iterable[Event], tid: Any, begin: float, end: float
) -> Iterator[Segment]:
    """A thread's time between `begin` and `end`, without gaps: its ranges nest."""
    inside = [
        (*_interval(e), e["name"])
        for e in ranged
        if e["tid"] == tid and e["ts"] >= begin and e["ts"] < end
    ]
    stack = [(end, "other")]
    now = begin
    for start, stop, name in sorted(inside, key=lambda e: (e[0], -e[1])):
        while stack[-1][0] <= start:
            until, part = stack.pop()
            yield Segment(now, until, part)
            now = until
        until, part = stack[-1]
        yield Segment(now, start, part)
        now = start
        stack.append((min(stop, until), part_of(name, part)))
    while stack:
        until, part = stack.pop()
        yield Segment(now, until, part)
        now = until


def _kernels(
    events: Iterable[Event],
    ranged: Sequence[Event],
    on_device: Iterable[Event],
    epoch: Interval,
) -> list[Segment]:
    """What ran on the device during an epoch; a kernel's part is that of the call it came from."""
    begin, end = epoch
    launches = {
        e["args"]["correlation"]: e
        for e in events
        if e.get("cat") in _LAUNCHES and "correlation" in e.get("args", {})
    }
    threads: dict[Any, list[Segment]] = {}
    found = []
    for kernel in on_device:
        start, stop = max(begin, kernel["ts"]), min(end, kernel["ts"] + kernel["dur"])
        if start >= stop:
            continue
        launch = launches.get(kernel["args"].get("correlation"))
        part = "other"
        if "nccl" in kernel["name"]:
            part = "exchange" if "SendRecv" in kernel["name"] else "reduce"
        elif launch is not None:
            tid, at = launch["tid"], launch["ts"]
            if tid not in threads:
                threads[tid] = list(_thread_segments(ranged, tid, begin, end))
            part = next((s.part for s in threads[tid] if s.begin <= at < s.end), "other")
        found.append(Segment(start, stop, part))
    return found


def _device_segments(kernels: Sequence[Segment], begin: float, end: float) -> Iterator[Segment]:
    """An epoch's time by what runs on the device: computation before communication."""
    edges = sorted([(k.begin, 1, k.part) for k in kernels] + [(k.end, -1, k.part) for k in kernels])
    order = ("sparse", "dense", "elementwise", "optimizer", "other", "exchange", "reduce")
    running = dict.fromkeys(order, 0)
    now = begin
    for at, change, part in [*edges, (end, 0, "other")]:
        yield Segment(now, at, next((p for p in order if running[p]), "other"))
        running[part] += change
        now = at


def _interval(event: Event) -> Interval:
    return float(event["ts"]), float(event["ts"]) + float(event["dur"])


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same instants as disjoint intervals, ascending."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _overlap(segments: Iterable[Segment], intervals: Sequence[Interval]) -> float:
    return sum(
        max(0.0, min(s.end, end) - max(s.begin, begin))
        for s in segments
        for begin, end in intervals
    )
