"""An epoch and a rank's memory against their floors.

    python benchmarks/floor.py STORE --ranks 1,2 --models gcn,sage

The floor of an epoch is the sum of three times, of the busiest rank, at rates measured here while
all cores do the same: its dense products, each shape at its own rate; the rows that its sparse
products gather, read by a loop that does nothing else, in the store's own order; every activation
(each layer's result) written and read once, at the rate of a copy. The floor of the memory is the
features, their aggregate where a model keeps it, the graph and the activations that the backward
pass needs; what a rank of the same model takes on a tiny graph is left out of what is measured.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
from epochs import WARMUP, Measured, measure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from roofline import read_rows

from gnndist.data import load
from gnndist.inspection.network import Network
from gnndist.inspection.operations import Gather, Product, RankSizes, StepTrace, total
from gnndist.inspection.prediction import Inspector
from gnndist.inspection.rates import Rates, on_all_cores
from gnndist.store import Store, write_store
from gnndist.training.config import TrainConfig
from gnndist.units import duration, size

MOST_ROWS = 200_000
"""of the store, on which gathering is measured"""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """Of the busiest rank: seconds of an epoch, bytes of memory."""

    dense_s: float
    gather_s: float
    activations_s: float
    memory: int

    @property
    def epoch_s(self) -> float:
        return self.dense_s + self.gather_s + self.activations_s


class Gathering:
    """Bytes a second that one core reads of rows in a store's order, all cores at it."""

    def __init__(self, store: Store, rates: Rates) -> None:
        self._rows = min(store.num_vertices, MOST_ROWS)
        start = (store.num_vertices - self._rows) // 2
        _, indices, _ = store.edges(start, start + self._rows)
        inside = (indices >= start) & (indices < start + self._rows)
        self._indices = np.ascontiguousarray(indices[inside] - start, np.int32)
        self._cores = rates.cores
        self._found: dict[int, float] = {}

    def rate(self, width: int) -> float:
        """For rows of so many float32 numbers."""
        if width not in self._found:
            x = np.zeros(self._rows * width, np.float32) + 1
            sums = np.zeros(16, np.float32)
            last = len(self._indices)

            def call() -> object:
                return read_rows(self._indices, x, width, sums, 0, last)

            self._found[width] = last * width * 4 / on_all_cores(lambda: call, self._cores)
        return self._found[width]


def floor_of(
    trace: StepTrace,
    sizes: RankSizes,
    config: TrainConfig,
    store: Store,
    rates: Rates,
    gathering: Gathering,
) -> Floor:
    """Of a model on a number of ranks."""
    dense, gather = np.zeros(sizes.ranks), np.zeros(sizes.ranks)
    for op in trace.operations:
        if isinstance(op, Product) and op.rows is not None:
            each = rates.product(op.k, op.n, inner=op.inner, dtype=torch.float32)
            dense += op.flops * each * op.rows.of(sizes)
        if isinstance(op, Gather) and op.entries is not None:
            width = op.heads * op.width
            gather += op.entries.of(sizes) * width * 4 / gathering.rate(width)
    kept = activations(sizes, config, store)
    copied = 2 * kept * float(rates.stream(np.array(2.0**26), fused=True))
    busiest = int(np.argmax(dense + gather + copied))
    threads = max(rates.cores // sizes.ranks, 1)
    features = 4 * sizes.whole.rows * store.manifest.num_features
    aggregate = features if config.input_dropout == 0 and config.savings.propagate_once else 0
    memory = kept + features + aggregate + total(trace.graph_memory, sizes)
    return Floor(
        dense_s=float(dense[busiest]) / threads,
        gather_s=float(gather[busiest]) / threads,
        activations_s=float(copied[busiest]) / threads,
        memory=int(memory.max()),
    )


def activations(sizes: RankSizes, config: TrainConfig, store: Store) -> NDArray[np.int64]:
    """[ranks] bytes of the layers' results, float32."""
    widths = [config.hidden] * (config.layers - 1) + [store.manifest.num_classes]
    rows = [view.rows for view in sizes.views]
    found: NDArray[np.int64] = sum(
        (4 * width * count for width, count in zip(widths, rows, strict=True)),
        np.zeros(sizes.ranks, np.int64),
    )
    return found


@click.command(help=__doc__, context_settings={"max_content_width": 100})
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--ranks", default="1,2", show_default=True)
@click.option("--models", default="gcn,sage", show_default=True)
@click.option("--layers", default=3, show_default=True)
@click.option("--hidden", default=256, show_default=True)
@click.option("--dropout", default=0.5, show_default=True)
@click.option("--epochs", default=12, show_default=True)
def main(
    store: Path, ranks: str, models: str, layers: int, hidden: int, dropout: float, epochs: int
) -> None:
    opened = Store.open(store)
    rates = Rates.of_this_machine()
    gathering = Gathering(opened, rates)
    table = Table(title=f"{store.name}: {layers} layers of {hidden}, dropout {dropout}")
    for heading in ("model", "ranks", "epoch", "dense", "gather", "activations", "÷ floor"):
        table.add_column(heading, justify="right")
    for heading in ("memory", "floor", "÷ floor"):
        table.add_column(heading, justify="right")
    for model in models.split(","):
        config = TrainConfig(
            model=model, layers=layers, hidden=hidden, dropout=dropout, device="cpu"
        )
        for count in map(int, ranks.split(",")):
            inspector = Inspector(opened, config, Network(ranks_per_host=count), rates)
            assert inspector.trace is not None
            sizes = inspector.at(count).sizes
            floor = floor_of(inspector.trace, sizes, config, opened, rates, gathering)
            measured = measure(store, config, count, epochs)
            table.add_row(model, str(count), *cells(floor, measured, tiny(config, count)))
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def tiny(config: TrainConfig, ranks: int) -> int:
    """Bytes that a rank takes with next to nothing to hold: the interpreter, its libraries."""
    with tempfile.TemporaryDirectory() as folder:
        store = write_store(load("synthetic:arxiv@0.001"), Path(folder) / "store")
        return measure(store.path, config, ranks, WARMUP + 1).memory


def cells(floor: Floor, measured: Measured, process: int) -> list[str]:
    parts = (floor.dense_s, floor.gather_s, floor.activations_s)
    return [
        duration(measured.epoch_s),
        *map(duration, parts),
        f"{measured.epoch_s / floor.epoch_s:.2f}",
        size(measured.memory - process),
        size(floor.memory),
        f"{(measured.memory - process) / floor.memory:.2f}",
    ]


if __name__ == "__main__":
    main()
