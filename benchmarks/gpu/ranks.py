"""Ranks of the GPU check: `python -m gpu.ranks STORE DEVICE`, told by standard input what to train.

A line in: {"config": …, "epochs": n, "warmup": n}. A line out (of rank 0): losses and seconds.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from gnndist.comm import Comm
from gnndist.crew import threads_for
from gnndist.device import backend_for, is_gpu, peak_device_memory, pick_device, synchronize
from gnndist.launch import joined
from gnndist.store import Store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer

BENCHMARKS = Path(__file__).resolve().parents[1]


class Ranks:
    """Some ranks that share this host's devices."""

    def __init__(self, store: Path, ranks: int, device: str, share: bool) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._processes = []
        for rank in range(ranks):
            place = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "PYTHONPATH": str(BENCHMARKS),
            }
            if share:
                place["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(
                    ","
                )[0]
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "gpu.ranks", str(store), device],
                    env=os.environ | place,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        self.backend: str = self._answer()["backend"]

    def train(self, config: dict[str, Any], *, epochs: int, warmup: int = 0) -> dict[str, Any]:
        """Losses, seconds an epoch and bytes of memory, of rank 0."""
        for process in self._processes:
            assert process.stdin is not None
            job = {"config": config, "epochs": epochs, "warmup": warmup}
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        output = self._processes[0].stdout
        assert output is not None
        line = output.readline()
        if not line:
            raise SystemExit("a rank has ended: see above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def some_ranks(store: Path, ranks: int, device: str, *, share: bool = False) -> Iterator[Ranks]:
    """Ranks with a device of their own each as far as there are any, or all with the first."""
    running = Ranks(store, ranks, device, share)
    try:
        yield running
    finally:
        running.end()


def _train(store: Store, comm: Comm, device: torch.device, job: dict[str, Any]) -> dict[str, Any]:
    config = TrainConfig.from_dict(job["config"])
    trainer = Trainer.create(store, config, comm, device)
    losses, seconds = [], []
    for epoch in range(1, job["warmup"] + job["epochs"] + 1):
        synchronize(device)
        start = time.perf_counter()
        losses.append(trainer.step(epoch))
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    return {
        "losses": losses,
        "seconds": seconds[job["warmup"] :],
        "metrics": trainer.evaluate(),
        "memory": peak_device_memory(device),
    }


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    store, device = Store.open(sys.argv[1]), pick_device(sys.argv[2])
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    with joined(device, threads=threads_for(local), timeout_s=120) as comm:
        backend = "none" if comm.world == 1 else backend_for(device, local)
        staged = ", staged" if is_gpu(device) and backend == "gloo" else ""
        _say(replies, comm, {"backend": backend + staged})
        for line in sys.stdin:
            _say(replies, comm, _train(store, comm, device, json.loads(line)))


def _say(replies: Any, comm: Comm, answer: dict[str, Any]) -> None:
    if comm.rank == 0:
        print(json.dumps(answer), file=replies, flush=True)


if __name__ == "__main__":
    main()
