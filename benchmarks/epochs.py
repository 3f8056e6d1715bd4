"""Epochs of real ranks on this machine, measured: what other benchmarks compare with.

Run as a script it is one of the ranks.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gnndist.buffers import give_back_free_memory
from gnndist.launch import joined, worker_environment
from gnndist.store import Store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer

WARMUP = 2
"""epochs that are not counted: they compute what is kept, and fill the buffers"""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An epoch of real ranks."""

    epoch_s: float
    cores_s: float
    wait_s: float
    reduce_s: float
    sent: int
    memory: int


def measure(store: Path, config: TrainConfig, ranks: int, epochs: int) -> Measured:
    """Medians over epochs of training with real ranks, which share this machine's cores."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        out = Path(folder) / "out.json"
        settings = json.dumps(config.to_dict())
        command = [sys.executable, __file__, str(store), settings, str(epochs), str(out)]
        job = os.environ | worker_environment(ranks)
        job |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
        job |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        processes = [
            subprocess.Popen(command, env=job | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(ranks)
        ]
        if sum(process.wait() != 0 for process in processes):
            raise SystemExit(f"training {config.model} with {ranks} ranks failed")
        return Measured(**json.loads(out.read_text()))


def work(path: Path, config: TrainConfig, epochs: int, out: Path) -> None:
    """One rank."""
    with joined(torch.device("cpu")) as comm:
        trainer = Trainer.create(Store.open(path), config, comm, torch.device("cpu"))
        lines: list[dict[str, float]] = []
        for epoch in range(1, epochs + 1):
            comm.meter.take()
            comm.all_reduce(torch.zeros(1))  # together
            used, start = time.process_time(), time.perf_counter()
            trainer.step(epoch)
            reading = comm.meter.take()
            lines.append(
                {
                    "epoch_s": time.perf_counter() - start,
                    "cores_s": time.process_time() - used,
                    "wait_s": reading.wait_s,
                    "reduce_s": reading.reduce_s,
                    "sent": reading.bytes_sent,
                }
            )
            if epoch == 1:
                give_back_free_memory()  # as `Trainer.run` does
            if epoch == WARMUP:
                trainer.evaluate()
        peak = peak_memory()
        everything: list[tuple[list[dict[str, float]], int]] = comm.all_gather(
            (lines[WARMUP:], peak)
        )
    if comm.rank == 0:
        out.write_text(json.dumps(summary(everything)))
    os._exit(0)  # gloo's threads may abort an interpreter that winds up


def peak_memory() -> int:
    """Most resident bytes of this process; getrusage would count its parent's before exec."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def summary(everything: list[tuple[list[dict[str, float]], int]]) -> dict[str, Any]:
    """Medians over epochs of the slowest rank; of cores and bytes, sums over ranks."""

    def median(name: str, over_ranks: Any) -> float:
        rounds = zip(*(lines for lines, _ in everything), strict=True)
        return statistics.median(over_ranks(line[name] for line in one) for one in rounds)

    return {
        "epoch_s": median("epoch_s", max),
        "cores_s": median("cores_s", sum),
        "wait_s": median("wait_s", max),
        "reduce_s": median("reduce_s", max),
        "sent": int(median("sent", sum)),
        "memory": max(peak for _, peak in everything),
    }


if __name__ == "__main__":
    work(
        Path(sys.argv[1]),
        TrainConfig(**json.loads(sys.argv[2])),
        int(sys.argv[3]),
        Path(sys.argv[4]),
    )
