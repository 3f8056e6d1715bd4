"""What epochs cost one rank, and the figures of all ranks that `ranks.json` keeps."""

import os
import platform
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gnndist.comm import Comm, Meter
from gnndist.device import name_of, peak_device_memory
from gnndist.rankgraph import RankGraph


@dataclass(kw_only=True)
class Tally:
    """Sums over the epochs of one rank; the first, which warms caches up, only while alone."""

    epochs: int = 0
    """how many the sums hold"""
    first: bool = True
    """whether they hold the first alone"""
    epoch_s: float = 0.0
    cpu_s: float = 0.0
    """of all threads of this process"""
    wait_s: float = 0.0
    reduce_s: float = 0.0
    messages_sent: int = 0
    bytes_to: dict[int, int] = field(default_factory=dict)
    evaluations: int = 0
    evaluate_s: float = 0.0

    def add(self, epoch_s: float, cpu_s: float, reading: Meter) -> None:
        """Note an epoch's seconds, by the clock and of processors, and its communication's cost."""
        if self.first and self.epochs == 1:
            self.epochs, self.first = 0, False
            self.epoch_s = self.cpu_s = self.wait_s = self.reduce_s = 0.0
            self.messages_sent, self.bytes_to = 0, {}
        self.epochs += 1
        self.epoch_s += epoch_s
        self.cpu_s += cpu_s
        self.wait_s += reading.wait_s
        self.reduce_s += reading.reduce_s
        self.messages_sent += reading.messages_sent
        for peer, size in reading.bytes_to.items():
            self.bytes_to[peer] = self.bytes_to.get(peer, 0) + size

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Note the seconds an evaluation takes."""
        start = time.perf_counter()
        yield
        self.evaluations += 1
        self.evaluate_s += time.perf_counter() - start

    def figures(self, world: int) -> dict[str, Any]:
        """Means: seconds an epoch by phase, bytes an epoch by receiving rank."""
        epochs = max(self.epochs, 1)
        compute_s = self.epoch_s - self.wait_s - self.reduce_s
        return {
            "epochs": self.epochs,
            "epoch_s": self.epoch_s / epochs,
            "compute_s": compute_s / epochs,
            "cpu_s": self.cpu_s / epochs,
            "wait_s": self.wait_s / epochs,
            "reduce_s": self.reduce_s / epochs,
            "evaluations": self.evaluations,
            "evaluate_s": self.evaluate_s / max(self.evaluations, 1),
            "messages_sent": self.messages_sent / epochs,
            "bytes_to": [self.bytes_to.get(peer, 0) / epochs for peer in range(world)],
        }


def rank_figures(comm: Comm, graph: RankGraph, tally: Tally) -> list[dict[str, Any]]:
    """Every rank's part of the graph, costs and machine, by rank: the content of `ranks.json`.

    Every rank must call this.
    """
    mine = {
        "rank": comm.rank,
        "vertices": graph.num_rows,
        "edges": len(graph.part.adjacency.indices),
        "halo": graph.part.halo_size(),
        **tally.figures(comm.world),
        "peak_memory_bytes": peak_memory(),
        **machine(graph.device),
    }
    return comm.all_gather(mine)


def peak_memory() -> int:
    """Most resident memory this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def machine(device: torch.device) -> dict[str, Any]:
    """Where this rank computes."""
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "device": name_of(device),
        "device_memory_bytes": peak_device_memory(device),
    }


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
