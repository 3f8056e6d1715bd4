"""What `gnndist inspect` predicts against what training measures, on this machine.

    python benchmarks/predict.py STORE --ranks 1,2,4,8 --layers 3
    python benchmarks/predict.py STORE --models gcn,sage --dropout 0

All ranks share this machine: the prediction has them all on one host, whose cores they share
(`gnndist inspect --ranks-per-host 0`). For each number of ranks, real ranks train some epochs;
figures are medians over epochs, seconds of the slowest rank. `cores` is the processor time of all
ranks together an epoch, which other programs on the machine disturb less than the clock; its
prediction is the work of all ranks. `sent` must be equal. `memory` is the largest rank's peak.
"""

import argparse
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

from gnndist.inspection.network import Network
from gnndist.inspection.prediction import Inspection, Inspector
from gnndist.inspection.rates import Rates
from gnndist.launch import joined, worker_environment
from gnndist.store import Store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer

TOLERANCE = 0.25
"""how far a predicted epoch may be from the measured one"""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An epoch of real ranks."""

    epoch_s: float
    cores_s: float
    wait_s: float
    reduce_s: float
    sent: int
    memory: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--ranks", default="1,2,4,8")
    parser.add_argument("--models", default="gcn")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--norm", default="none")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--measure", action="store_true", help="measure the machine again")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    models = options.models.split(",")
    if options.worker is not None:
        work(options.store, config_of(options, models[0]), options.epochs, options.worker)
        return
    store = Store.open(options.store)
    print(f"{store.path}: {store.num_vertices:,} vertices, {store.num_edges:,} edges; {machine()}")
    print("          |       epoch, s         |       cores, s         | waiting + reduce, s   |"
          " sent, MB | memory, MB")  # fmt: skip
    print("model  P  | predicted measured   ÷ | predicted measured   ÷ | predicted   measured  |"
          "          | predicted measured   ÷")  # fmt: skip
    worst = 0.0
    for model in models:
        config = config_of(options, model)
        rates = Rates.of_this_machine(again=options.measure)
        for ranks in map(int, options.ranks.split(",")):
            network = Network(ranks_per_host=ranks)
            predicted = Inspector(store, config, network, rates).at(ranks)
            measured = measure(options, model, ranks)
            worst = max(worst, say(model, predicted, measured))
    print(f"largest deviation of an epoch's time: {100 * worst:.0f} %")
    sys.exit(worst > TOLERANCE)


def config_of(options: argparse.Namespace, model: str) -> TrainConfig:
    return TrainConfig(
        model=model,
        layers=options.layers,
        hidden=options.hidden,
        dropout=options.dropout,
        norm=options.norm,
        device="cpu",
    )


def say(model: str, predicted: Inspection, measured: Measured) -> float:
    """One line; how far the predicted epoch is from the measured one."""
    figures = predicted.model
    assert figures is not None
    epoch = figures.epoch
    blocked = float((epoch.wait_s + epoch.reduce_s).max())
    cores = float(epoch.core_s.sum())
    memory = int(figures.memory.rank.max())
    same = "equal" if int(figures.sent.sum()) == measured.sent else f"NOT {measured.sent:,}"
    print(
        f"{model:<6}{predicted.ranks:>2}  | {epoch.epoch_s:>9.3f} {measured.epoch_s:>8.3f} "
        f"{epoch.epoch_s / measured.epoch_s:>4.2f} | {cores:>9.3f} {measured.cores_s:>8.3f} "
        f"{cores / measured.cores_s:>4.2f} | {blocked:>9.3f}   "
        f"{measured.wait_s + measured.reduce_s:>8.3f}  "
        f"| {figures.sent.sum() / 1e6:>6.1f} {same} | {memory / 1e6:>9.0f} "
        f"{measured.memory / 1e6:>8.0f} {memory / measured.memory:>4.2f}",
        flush=True,
    )
    return abs(epoch.epoch_s / measured.epoch_s - 1)


def measure(options: argparse.Namespace, model: str, ranks: int) -> Measured:
    """Train with real ranks on this machine."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        out = Path(folder) / "out.json"
        command = [
            sys.executable, __file__, str(options.store), "--models", model,
            *(f"--{name}={getattr(options, name)}"
              for name in ("layers", "hidden", "dropout", "norm", "epochs")),
            "--worker", str(out),
        ]  # fmt: skip
        job = os.environ | worker_environment(ranks)
        job |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
        job |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        processes = [
            subprocess.Popen(command, env=job | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(ranks)
        ]
        if sum(process.wait() != 0 for process in processes):
            raise SystemExit(f"training {model} with {ranks} ranks failed")
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
            if epoch == 2:
                trainer.evaluate()
        peak = peak_memory()
        everything: list[tuple[list[dict[str, float]], int]] = comm.all_gather((lines[2:], peak))
    if comm.rank == 0:
        out.write_text(json.dumps(summary(everything)))


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


def machine() -> str:
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}"


if __name__ == "__main__":
    main()
