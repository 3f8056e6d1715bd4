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
import os
import sys
from pathlib import Path

import torch
from epochs import Measured, measure

from gnndist.inspection.network import Network
from gnndist.inspection.prediction import Inspection, Inspector
from gnndist.inspection.rates import Rates
from gnndist.store import Store
from gnndist.training.config import TrainConfig

TOLERANCE = 0.25
"""how far a predicted epoch may be from the measured one"""


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
    options = parser.parse_args()
    models = options.models.split(",")
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
            measured = measure(options.store, config, ranks, options.epochs)
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


def machine() -> str:
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}"


if __name__ == "__main__":
    main()
