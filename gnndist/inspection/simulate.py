"""An epoch of all ranks, operation by operation, on a stated machine and network.

The model. A rank's work takes the seconds of a core that `Rates` and `Locality` measured, shared
out over the rank's cores. On a host with more ranks than cores, a rank's work takes at least the
host's share of all its ranks' work, and their data push each other's out of the caches. A message
costs its sender and its receiver time of their cores, by the byte. It is on its way once both are
at the exchange (gloo sends to a receiver that is ready) and arrives after the latency and the time
that the busier of the two links needs for the whole exchange; whatever a rank computes meanwhile
hides that. An all-reduce starts when the last rank is there and is gloo's ring: 2 (P − 1) steps.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gnndist.inspection.costs import Costs
from gnndist.inspection.network import Network
from gnndist.inspection.operations import (
    Arrive,
    Depart,
    RankSizes,
    Reduce,
    StepTrace,
    pairs_of,
)

Seconds = NDArray[np.float64]
KINDS = ("dense", "sparse", "elementwise", "transport", "overhead")
"""of work: products, gathers, the rest on vertices, messages' own, what does not grow"""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """The prediction, [ranks] seconds each."""

    epoch_s: float
    """of the slowest rank; all end together"""
    work_s: dict[str, Seconds]
    """by kind, of `KINDS`"""
    core_s: Seconds
    """of cores: all work, whatever the number of cores it is shared out over"""
    wait_s: Seconds
    """blocked on messages that had not arrived"""
    reduce_s: Seconds
    """blocked in all-reduces, for the slowest rank and for the ring itself"""

    @property
    def busy_s(self) -> Seconds:
        """[ranks] all work."""
        busy: Seconds = np.sum(list(self.work_s.values()), axis=0)
        return busy


@dataclass(kw_only=True)
class _Clock:
    """Where every rank stands."""

    now: Seconds
    wait: Seconds
    reduce: Seconds
    work: dict[str, Seconds]
    core: Seconds
    departed: dict[int, tuple[Seconds, Depart]] = field(default_factory=dict)

    def spend(self, kind: str, core_s: Seconds, seconds: Seconds) -> None:
        """Work of so many seconds of a core, which takes `seconds`."""
        self.core = self.core + core_s
        self.now = self.now + seconds
        self.work[kind] = self.work[kind] + seconds


def simulate(trace: StepTrace, sizes: RankSizes, costs: Costs, network: Network) -> Epoch:
    """Predict an epoch (from the second on) for every rank."""
    ranks = sizes.ranks
    hosts = np.array(network.host(ranks))
    share = _Sharing(hosts, costs.cores)
    clock = _Clock(
        now=np.zeros(ranks),
        wait=np.zeros(ranks),
        reduce=np.zeros(ranks),
        work={kind: np.zeros(ranks) for kind in KINDS},
        core=np.zeros(ranks),
    )
    overhead = np.full(ranks, costs.overhead_s / max(len(trace.operations), 1))
    for op in trace.operations:
        clock.spend("overhead", overhead, share.serial(overhead))
        if isinstance(op, Depart):
            pairs = pairs_of(op, sizes)
            clock.departed[op.exchange] = (clock.now, op)
            seconds = costs.transport(pairs, op.message_bytes)
            clock.spend("transport", seconds, share.serial(seconds))
        elif isinstance(op, Arrive):
            posted, departure = clock.departed[op.exchange]
            pairs = pairs_of(departure, sizes) * departure.message_bytes
            arrived = _arrivals(pairs, posted, hosts, network, costs)
            clock.wait += np.maximum(arrived - clock.now, 0.0)
            clock.now = np.maximum(arrived, clock.now)
        elif isinstance(op, Reduce):
            ended = clock.now.max() + _ring(op.nbytes, hosts, network, costs)
            clock.reduce += ended - clock.now
            clock.now = np.full(ranks, ended)
        else:
            kind, seconds = costs.of(op, sizes, share.crowd)
            clock.spend(kind, seconds, share.parallel(seconds))
    return Epoch(
        epoch_s=float(clock.now.max()),
        work_s=clock.work,
        core_s=clock.core,
        wait_s=clock.wait,
        reduce_s=clock.reduce,
    )


class _Sharing:
    """Ranks of a host on its cores."""

    def __init__(self, hosts: NDArray[np.int64], cores: int) -> None:
        self._hosts = hosts
        self._cores = cores
        on_host = np.bincount(hosts)
        self._threads = np.maximum(cores // on_host, 1)[hosts]
        self.crowd: Seconds = np.maximum(on_host / cores, 1.0)[hosts]
        """[ranks] ranks a core"""

    def parallel(self, seconds: Seconds) -> Seconds:
        """Seconds of work that takes so many seconds of one core."""
        together = np.bincount(self._hosts, weights=seconds)[self._hosts]
        return np.maximum(seconds / self._threads, together / self._cores)

    def serial(self, seconds: Seconds) -> Seconds:
        """Likewise for what threads do not share."""
        return seconds * self.crowd


def _arrivals(
    nbytes: NDArray[np.int64],
    posted: Seconds,
    hosts: NDArray[np.int64],
    network: Network,
    costs: Costs,
) -> Seconds:
    """[ranks] when everything sent to a rank has arrived."""
    away = hosts[:, None] != hosts[None, :]
    far = np.where(away, nbytes, 0)
    out = np.bincount(hosts, weights=far.sum(axis=1))[hosts] / network.bandwidth
    into = np.bincount(hosts, weights=far.sum(axis=0))[hosts] / network.bandwidth
    near = np.where(away, 0, nbytes).sum(axis=0) / costs.wire.bandwidth + costs.wire.latency
    link = np.where(far > 0, np.maximum(out[:, None], into[None, :]) + network.latency, 0.0)
    both = np.maximum(posted[:, None], posted[None, :])
    at = np.where(nbytes > 0, both + np.maximum(link, near[None, :]), 0.0)
    arrived: Seconds = at.max(axis=0, initial=0.0)
    return arrived


def _ring(nbytes: int, hosts: NDArray[np.int64], network: Network, costs: Costs) -> float:
    """Seconds of a ring all-reduce over all ranks once they are all there."""
    ranks = len(hosts)
    if ranks == 1:
        return 0.0
    several = hosts[-1] > 0
    latency = network.latency if several else 0.0
    bandwidth = min(network.bandwidth, costs.wire.bandwidth) if several else costs.wire.bandwidth
    crowd = max(ranks / (costs.cores * (hosts[-1] + 1)), 1.0)
    steps = 2 * (ranks - 1)
    step = costs.wire.reduce_s * crowd + latency
    core = 2 * costs.wire.core_s_per_byte * crowd
    return float(steps * (step + nbytes / ranks * (1 / bandwidth + core)))
