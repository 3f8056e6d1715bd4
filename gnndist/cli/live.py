"""Training as it goes: a live view on a terminal, plain lines elsewhere. Only rank 0 speaks."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from gnndist.cli.console import console, say
from gnndist.graph import SPLITS
from gnndist.tasks import task
from gnndist.units import duration, size

REDRAW_S = 0.1
WIDTH = 80
LINES = 20
"""about how many lines a training takes where there is no terminal"""


class EpochView:
    """Progress of one training: call it with each epoch's figures."""

    def __init__(self, title: str, epochs: int, task_name: str) -> None:
        self._title = title
        self._epochs = epochs
        self._task = task(task_name)
        self._every = max(1, epochs // LINES)
        self._start = time.perf_counter()
        self._first_epoch = 0
        self._metrics: dict[str, float] = {}
        self._best: tuple[float, int] | None = None
        self._live = Live(console=console, auto_refresh=False)
        self._drawn_at = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Hold the terminal, if there is one."""
        if not console.is_terminal:
            yield
            return
        with self._live:
            yield

    def __call__(self, line: Mapping[str, Any]) -> None:
        epoch = line["epoch"]
        self._first_epoch = self._first_epoch or epoch
        self._note(line)
        last = epoch == self._epochs
        if not self._live.is_started:
            if epoch == self._first_epoch or epoch % self._every == 0 or last:
                say(self._text(line))
        elif last or time.perf_counter() - self._drawn_at > REDRAW_S:
            self._live.update(self._panel(line), refresh=True)
            self._drawn_at = time.perf_counter()

    def _note(self, line: Mapping[str, Any]) -> None:
        metric, sign = self._task.metric, 1 if self._task.higher_is_better else -1
        found = {split: line[key] for split in SPLITS if (key := f"{split}_{metric}") in line}
        self._metrics |= found
        valid = found.get("valid")
        if valid is not None and (self._best is None or sign * valid > sign * self._best[0]):
            self._best = (valid, line["epoch"])

    def _left_s(self, epoch: int) -> float:
        done = epoch - self._first_epoch + 1
        return (time.perf_counter() - self._start) / done * (self._epochs - epoch)

    def _figures(self) -> str:
        return "  ".join(f"{split} {value:.4f}" for split, value in self._metrics.items())

    def _text(self, line: Mapping[str, Any]) -> str:
        epoch = line["epoch"]
        return (
            f"epoch {epoch:>{len(str(self._epochs))}}/{self._epochs}  loss {line['loss']:.4f}  "
            f"{self._figures()}  {duration(line['epoch_s'])} an epoch, "
            f"{_waiting(line):.0f}% waiting, {duration(self._left_s(epoch))} left"
        )

    def _panel(self, line: Mapping[str, Any]) -> Panel:
        epoch = line["epoch"]
        table = Table.grid(padding=(0, 2))
        table.add_row("loss", f"{line['loss']:.4f}   learning rate {line['lr']:.3g}")
        table.add_row(self._task.metric, self._figures())
        if self._best is not None:
            table.add_row("best", f"valid {self._best[0]:.4f} at epoch {self._best[1]}")
        table.add_row(
            "epoch",
            f"{duration(line['epoch_s'])}, {_waiting(line):.0f}% of it waiting for the exchange, "
            f"{size(line['bytes_sent'])} sent",
        )
        left = f"about {duration(self._left_s(epoch))}" if epoch < self._epochs else "nothing"
        table.add_row("left", left)
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            f"epoch {epoch}/{self._epochs}",
            ProgressBar(total=self._epochs, completed=epoch, width=40),
        )
        content = Group(bar, table)
        return Panel(
            content, title=self._title, title_align="left", width=min(WIDTH, console.width)
        )


def _waiting(line: Mapping[str, Any]) -> float:
    """Percent of an epoch spent blocked on the exchange, on the slowest rank."""
    return float(100 * line["wait_s"] / max(line["epoch_s"], 1e-9))
