"""What messages between two processes of this machine cost: gloo over its own loopback.

Run as a module it is one of the two processes.
"""

import importlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import torch
import torch.distributed as dist

from gnndist.comm import ProcessComm
from gnndist.inspection.rates import Rates
from gnndist.kernels import compile_kernels

BIG = 1 << 24
"""bytes of the messages whose bandwidth is measured"""
BUFFERS = 8
MANY = 32
"""messages at a time from which the cost of one is told"""


@dataclass(frozen=True, kw_only=True)
class Wire:
    """Costs of the transport on this machine."""

    latency: float
    """seconds of an exchange of two tiny messages, there and back at the same time"""
    core_s_per_exchange: float
    """seconds of a core for an exchange with one rank, besides its bytes"""
    core_s_per_message: float
    """seconds of a core for each further message sent or received"""
    reduce_s: float
    """seconds of one step of an all-reduce's ring"""
    core_s_per_byte: float
    """seconds of a core for a byte sent or received"""
    bandwidth: float
    """bytes a second each way between two processes that do nothing else"""
    process_bytes: int
    """resident memory of a rank that has loaded nothing yet"""


def measured_wire(rates: Rates) -> Wire:
    """Measured once a machine: two processes, some seconds."""
    return Wire(**rates.get("wire", lambda: asdict(_measure())))


def _measure() -> Wire:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "gnndist.inspection.wire",
            f"{folder}/meet",
            f"{folder}/out",
        ]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        processes = [
            subprocess.Popen([*command, str(rank)], env=environment, stdout=subprocess.DEVNULL)
            for rank in (0, 1)
        ]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise RuntimeError(f"measuring the transport failed: exit codes {codes}")
        return Wire(**json.loads(Path(folder, "out").read_text()))


def _work(meeting: str, out: str, rank: int) -> None:
    importlib.import_module("gnndist.training.run")
    compile_kernels()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    comm = ProcessComm()
    comm.all_reduce(torch.zeros(1))
    resident = psutil.Process().memory_info().rss
    tiny, one = _exchange(comm, 64)
    _, many = _typical(lambda: _messages(comm, MANY), 40)
    big, core = _exchange(comm, BIG)
    small = torch.zeros(16)
    reduce, _ = _typical(lambda: comm.all_reduce(small), 400)
    wire = Wire(
        latency=tiny,
        core_s_per_exchange=one,
        core_s_per_message=max(many - one, 0.0) / (2 * (MANY - 1)),
        reduce_s=reduce / 2,
        core_s_per_byte=max(core - one, 0.0) / (2 * BIG),
        bandwidth=BIG / max(big - tiny, 1e-9),
        process_bytes=resident,
    )
    if rank == 0:
        Path(out).write_text(json.dumps(asdict(wire)))
    dist.barrier()
    dist.destroy_process_group()


def _exchange(comm: ProcessComm, nbytes: int) -> tuple[float, float]:
    """Seconds, and seconds of cores in this process, of an exchange of so many bytes each way.

    Large ones take buffers in turn, so that none is in a cache from the time before.
    """
    count = BUFFERS if nbytes == BIG else 1
    buffers = torch.zeros(2, count, nbytes, dtype=torch.uint8)
    nothing = torch.zeros(0, dtype=torch.uint8)
    turns = itertools.cycle(range(count))

    def exchange() -> None:
        sends, receives = [nothing, nothing], [nothing, nothing]
        at, peer = next(turns), 1 - comm.rank
        sends[peer], receives[peer] = buffers[0, at], buffers[1, at]
        comm.start(sends, receives).wait()

    return _typical(exchange, 400 if nbytes < BIG else 3 * BUFFERS)


def _messages(comm: ProcessComm, count: int) -> None:
    """So many tiny messages each way at the same time."""
    peer = 1 - comm.rank
    mine, other = torch.zeros(count, 64), torch.zeros(count, 64)
    sends = [dist.P2POp(dist.isend, mine[at], peer) for at in range(count)]
    receives = [dist.P2POp(dist.irecv, other[at], peer) for at in range(count)]
    for work in dist.batch_isend_irecv([*receives, *sends]):
        work.wait()


def _typical(call: Callable[[], object], times: int) -> tuple[float, float]:
    """Seconds of a call, and of this process's cores, undisturbed.

    The tenth part of the calls that took least tells: other programs may be running.
    """
    call()
    walls, cores = [], []
    for _ in range(times):
        start, used = time.perf_counter(), time.process_time()
        call()
        walls.append(time.perf_counter() - start)
        cores.append(time.process_time() - used)
    return sorted(walls)[times // 10], sorted(cores)[times // 10]


if __name__ == "__main__":
    _work(sys.argv[1], sys.argv[2], int(sys.argv[3]))
