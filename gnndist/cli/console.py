"""What rank 0 says: a live line on a terminal, plain lines elsewhere, tables at the end."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from gnndist.graph import SPLITS
from gnndist.tasks import task
from gnndist.units import duration, size

console = Console(highlight=False, soft_wrap=True)


def say(line: str) -> None:
    """One line for the person who runs the command."""
    console.print(line, markup=False)
    sys.stdout.flush()


class EpochLines:
    """Progress of training: call it with each epoch's figures."""

    def __init__(self, epochs: int, task_name: str, *, speak: bool) -> None:
        self._epochs = epochs
        self._metric = task(task_name).metric
        self._speak = speak
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._every = max(1, epochs // 20)
        self._start = time.perf_counter()
        self._metrics: dict[str, float] = {}

    def __enter__(self) -> "EpochLines":
        if self._speak and console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live.is_started:
            self._live.stop()

    def __call__(self, line: Mapping[str, Any]) -> None:
        if not self._speak:
            return
        epoch = line["epoch"]
        self._metrics |= {
            split: line[key] for split in SPLITS if (key := f"{split}_{self._metric}") in line
        }
        left = (time.perf_counter() - self._start) / epoch * (self._epochs - epoch)
        figures = "  ".join(f"{split} {value:.4f}" for split, value in self._metrics.items())
        text = (
            f"epoch {epoch:>{len(str(self._epochs))}}/{self._epochs}  loss {line['loss']:.4f}  "
            f"{figures}  {duration(line['epoch_s'])} an epoch, "
            f"{100 * line['wait_s'] / line['epoch_s']:.0f}% waiting, {duration(left)} left"
        )
        if self._live.is_started:
            self._live.update(text, refresh=True)
        elif epoch == 1 or epoch % self._every == 0 or epoch == self._epochs:
            say(text)


def result_table(result: Mapping[str, Any], task_name: str) -> None:
    """The figures of a finished run."""
    metric = task(task_name).metric
    table = Table(show_header=False)
    table.add_row("best epoch (by validation)", str(result["best_epoch"]))
    for split in SPLITS:
        if (key := f"{split}_{metric}") in result:
            table.add_row(f"{split} {metric}", f"{result[key]:.4f}")
    halo = result["halo"]
    table.add_row("epoch time", duration(result["mean_epoch_s"]))
    table.add_row("exchanged an epoch", size(result["bytes_sent_per_epoch"]))
    table.add_row("halo", f"{halo:,} vertices ({halo / result['vertices']:.3f} of all)")
    table.add_row("ranks", str(result["ranks"]))
    console.print(table)


def metrics_table(metrics: Mapping[str, float]) -> None:
    """Metrics, a row a split."""
    names = list(dict.fromkeys(key.partition("_")[2] for key in metrics))
    table = Table("split", *names)
    for split in SPLITS:
        table.add_row(split, *(f"{metrics[f'{split}_{name}']:.4f}" for name in names))
    console.print(table)
