"""One rank of the network benchmark: trains as it is told, line by line, and says what it cost.

Standard input: {"config": …, "epochs": n, "warmup": n} or {"end": true}. Standard output: a line
for each, with what every epoch took on this rank.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnndist.comm import Comm, Meter, Pending, Reduction
from gnndist.launch import joined
from gnndist.store import Store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer


class Recording:
    """A `Comm` that keeps the shapes of an epoch's exchanges and the bytes of its sums."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self.rank, self.world = comm.rank, comm.world
        self.exchanges: list[tuple[list[int], list[int]]] = []
        self.waits: list[float] = []
        """seconds blocked on each exchange, in the order of the waits"""
        self.reduced = 0

    @property
    def meter(self) -> Meter:
        return self._comm.meter

    def start(self, sends: Sequence[Tensor], receives: Sequence[Tensor]) -> Pending:
        self.exchanges.append(([t.nbytes for t in sends], [t.nbytes for t in receives]))
        return _Timed(self._comm.start(sends, receives), self.waits)

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        self.reduced += tensor.nbytes
        self._comm.all_reduce(tensor, op)

    def all_gather(self, value: Any) -> list[Any]:
        return self._comm.all_gather(value)

    def swap(self, values: Sequence[Any]) -> list[Any]:
        return self._comm.swap(values)

    def forget(self) -> None:
        self.exchanges, self.waits, self.reduced = [], [], 0


class _Timed:
    def __init__(self, pending: Pending, waits: list[float]) -> None:
        self._pending, self._waits = pending, waits

    def wait(self) -> None:
        start = time.perf_counter()
        self._pending.wait()
        self._waits.append(time.perf_counter() - start)


def together(comm: Comm) -> None:
    """Wait for the others."""
    comm.all_reduce(torch.zeros(1))


def counted() -> int:
    """Bytes that this host's interface has sent, by its own counter."""
    interface = os.environ["GLOO_SOCKET_IFNAME"]
    return int(Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


def measure(store: Store, comm: Comm, job: dict[str, Any]) -> dict[str, Any]:
    """Train some epochs; then the same exchanges with nothing beside them."""
    recording = Recording(comm)
    config = TrainConfig.from_dict(job["config"])
    trainer = Trainer.create(store, config, recording, torch.device("cpu"))
    epochs = []
    for epoch in range(1, job["warmup"] + job["epochs"] + 1):
        recording.forget()
        together(comm)
        comm.meter.take()
        before, start = counted(), time.perf_counter()
        loss = trainer.step(epoch)
        epoch_s = time.perf_counter() - start
        reading = comm.meter.take()
        if epoch > job["warmup"]:
            epochs.append(
                {
                    "loss": loss,
                    "epoch_s": epoch_s,
                    "wait_s": reading.wait_s,
                    "waits": recording.waits,
                    "reduce_s": reading.reduce_s,
                    "sent": reading.bytes_sent,
                    "reduced": recording.reduced,
                    "counted": counted() - before,
                }
            )
    return {
        "epochs": epochs,
        "exchanges": [sum(sends) for sends, _ in recording.exchanges],
        "alone": alone(comm, recording.exchanges),
    }


def alone(comm: Comm, exchanges: Sequence[tuple[list[int], list[int]]]) -> dict[str, float]:
    """The exchanges of one epoch, one after the other: seconds, bytes said and counted."""

    def buffers(sizes: Sequence[int]) -> list[Tensor]:
        return [torch.zeros(size // 4) for size in sizes]

    made = [(buffers(sends), buffers(receives)) for sends, receives in exchanges]
    best = {"seconds": float("inf"), "sent": 0.0, "counted": 0.0}
    for _ in range(3):
        together(comm)
        comm.meter.take()
        seconds, before = 0.0, counted()
        for sends, receives in made:
            together(comm)
            start = time.perf_counter()
            comm.start(sends, receives).wait()
            seconds += time.perf_counter() - start
        together(comm)
        sent = comm.meter.take().bytes_sent
        found = {"seconds": seconds, "sent": float(sent), "counted": float(counted() - before)}
        best = min(best, found, key=lambda f: f["seconds"])
    return best


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    store = Store.open(sys.argv[1])
    with joined(torch.device("cpu"), threads=int(sys.argv[2])) as comm:
        print("ready", file=replies, flush=True)
        for line in sys.stdin:
            job = json.loads(line)
            if "end" in job:
                break
            print(json.dumps(measure(store, comm, job)), file=replies, flush=True)


if __name__ == "__main__":
    main()
