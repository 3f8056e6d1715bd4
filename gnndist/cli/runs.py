"""`gnndist runs`: the runs in a folder and what they came to."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gnndist.cli.console import console, say
from gnndist.graph import SPLITS
from gnndist.report.reading import find_runs, read_run
from gnndist.report.record import RunRecord
from gnndist.units import duration, size

WIDE = 140
"""characters that all columns need, and that output to a file has"""
STYLES = {"running": "cyan", "failed": "red", "stopped": "yellow", "unfinished": "yellow"}
ORDERS: dict[str, Callable[[RunRecord], Any]] = {
    "started": lambda run: run.started,
    "name": lambda run: run.name,
    "test": lambda run: _best_first(run, "test"),
    "valid": lambda run: _best_first(run, "valid"),
    "time": lambda run: _or_last(run.epoch_s),
}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("runs"))
@click.option(
    "--sort",
    type=click.Choice(list(ORDERS)),
    default="started",
    help="order; by a split: the best first  [started]",
)
@click.option("--reverse", is_flag=True, help="the other way round")
@click.option("--json", "as_json", is_flag=True, help="as JSON instead of a table")
def command(folder: Path, sort: str, reverse: bool, as_json: bool) -> None:
    """List the runs in FOLDER with their figures; those not finished say how far they came.

    \b
    Example:
      gnndist runs runs --sort test
    FOLDER is searched with its subfolders; by default it is ./runs.
    """
    found = [
        read_run(path, str(path.relative_to(folder)) if path != folder else path.name)
        for path in find_runs(folder)
    ]
    found.sort(key=ORDERS[sort], reverse=reverse)
    if as_json:
        click.echo(json.dumps([summary(run) for run in found], indent=2))
        return
    if not found:
        say(f"no runs in {folder}")
        return
    # A file has no width of its own, and nobody wants a table folded in one.
    place = console if console.is_terminal else Console(width=WIDE, highlight=False)
    place.print(runs_table(found, place.width))
    for run in found:
        if run.ended is not None and not run.finished and not run.running:
            at = run.ended["at"].replace("T", " ")
            say(f"{run.name} {run.state} at {at}: {run.ended['message']}")


def runs_table(runs: Sequence[RunRecord], width: int) -> Table:
    """A row a run; where `width` characters are too few, without the less important columns."""
    metrics = {run.metric for run in runs if run.metric}
    metric = metrics.pop() if len(metrics) == 1 else "metric"
    columns: list[tuple[str, Callable[[RunRecord], str]]] = [
        ("run", lambda run: escape(run.name)),
        ("state", _state),
        ("model", lambda run: escape(str(run.config.get("model", "")))),
        (f"test\n{metric}", lambda run: _metric(run, "test")),
        (f"valid\n{metric}", lambda run: _metric(run, "valid")),
        ("epoch\ntime", lambda run: _text(run.epoch_s, duration)),
        ("ranks", lambda run: _text(run.num_ranks or None, str)),
    ]
    if width >= WIDE:
        columns[3:3] = [("store", lambda run: escape(_store(run)))]
        columns += [
            ("sent an\nepoch", lambda run: _text(run.bytes_per_epoch, size)),
            ("best\nepoch", lambda run: _text(run.best.get("epoch"), str)),
            ("epochs", lambda run: _text(run.epochs or None, str)),
            ("started", lambda run: f"{run.started:%Y-%m-%d %H:%M}"),
        ]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for title, _ in columns:
        words = title in ("run", "state", "model", "store", "started")
        table.add_column(
            title, justify="left" if words else "right", no_wrap=title != "run", overflow="fold"
        )
    for run in runs:
        table.add_row(*(text(run) for _, text in columns))
    return table


def summary(run: RunRecord) -> dict[str, Any]:
    """A run's figures by name."""
    figures = {split: run.figure(split) for split in SPLITS}
    spreads = {f"{split}_std": run.spread(split) for split in SPLITS if run.seeds}
    return {
        "path": str(run.path),
        "state": run.state,
        "message": None if run.ended is None else run.ended["message"],
        "started": run.started.isoformat(timespec="seconds"),
        "model": run.config.get("model"),
        "store": run.about.get("store"),
        "seeds": run.seeds or [run.config.get("seed")],
        "ranks": run.num_ranks,
        "epochs": run.epochs,
        "epochs_planned": run.config.get("epochs"),
        "metric": run.metric,
        "best_epoch": run.best.get("epoch"),
        **figures,
        **spreads,
        "loss": run.loss,
        "epoch_s": run.epoch_s,
        "bytes_sent_per_epoch": run.bytes_per_epoch,
        "peak_memory_bytes": run.peak_memory,
    }


def _state(run: RunRecord) -> str:
    if run.finished:
        return f"finished, {len(run.seeds)} seeds" if run.seeds else "finished"
    return f"[{STYLES[run.state]}]{run.state}, {run.progress}[/]"


def _metric(run: RunRecord, split: str) -> str:
    value, spread = run.figure(split), run.spread(split)
    if value is None:
        return ""
    return f"{value:.4f}" if spread is None else f"{value:.4f} ± {spread:.4f}"


def _text(value: Any, words: Callable[[Any], str]) -> str:
    return "" if value is None else words(value)


def _store(run: RunRecord) -> str:
    return Path(str(run.about.get("store", ""))).name


def _best_first(run: RunRecord, split: str) -> tuple[bool, float]:
    value = run.figure(split)
    return _or_last(None if value is None else -run.better * value)


def _or_last(value: float | None) -> tuple[bool, float]:
    """A key by which those without the figure come last."""
    missing = value is None or value != value
    return missing, 0.0 if value is None or missing else value
