"""The tables of a report: figures, options, machines, ranks."""

import shlex
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from gnndist.graph import SPLITS
from gnndist.report.record import RunRecord
from gnndist.training.config import TrainConfig
from gnndist.units import duration, size

NONE = "–"


class Cell(NamedTuple):
    """What stands in a table, and whether it is the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that every run has, a value a run."""

    name: str
    values: list[str]
    differs: bool
    """whether runs differ in it, though they need not"""
    changed: bool = False
    """whether a value is not the default"""


class Figure(NamedTuple):
    """A figure of a run: its number and how that reads."""

    title: str
    value: Callable[[RunRecord], float | None]
    text: Callable[[float], str]
    better: int = 0
    """1 where more is better, −1 where less is, 0 where neither"""


def figures_of(runs: Sequence[RunRecord]) -> list[Figure]:
    """The figures that at least one of the runs has."""
    first = next((run for run in runs if run.metric), runs[0])

    def of_split(split: str) -> Figure:
        name = (first.metric or "").replace("_", " ")
        return Figure(f"{split} {name}", lambda run: run.figure(split), _metric, first.better)

    every = [
        *(of_split(split) for split in reversed(SPLITS)),
        Figure("best epoch", lambda run: run.best.get("epoch"), _count),
        Figure("epochs", lambda run: run.epochs, _count),
        Figure("last loss", lambda run: run.loss, _metric),
        Figure("ranks", lambda run: run.num_ranks or None, _count),
        Figure("epoch time", lambda run: run.epoch_s, duration, -1),
        Figure("sent an epoch", lambda run: run.bytes_per_epoch, size),
        Figure("halo ÷ vertices", _halo, lambda value: f"{value:.3f}"),
        Figure("peak memory", lambda run: run.peak_memory, size),
    ]
    return [figure for figure in every if any(figure.value(run) is not None for run in runs)]


def comparison(runs: Sequence[RunRecord], figures: Sequence[Figure]) -> list[list[Cell]]:
    """A row a run, a cell a figure; the best of a column marked where runs differ in it."""
    columns = []
    for figure in figures:
        values = [figure.value(run) for run in runs]
        known = [figure.better * v for v in values if v is not None and v == v]
        best = max(known) if known and figure.better and min(known) < max(known) else None
        columns.append(
            [
                Cell(NONE) if v is None else Cell(figure.text(v), figure.better * v == best)
                for v in values
            ]
        )
    return [list(row) for row in zip(*columns, strict=True)]


def over_seeds(runs: Sequence[RunRecord], figures: Sequence[Figure]) -> list[str]:
    """Mean ± standard deviation of each figure, where runs differ in nothing but their seed."""
    told = [{k: v for k, v in run.config.items() if k != "seed"} for run in runs]
    seeds = {run.config.get("seed") for run in runs}
    finished = all(run.finished for run in runs)
    if len(runs) < 2 or len(seeds) < len(runs) or not finished or told.count(told[0]) < len(runs):
        return []
    cells = []
    for figure in figures:
        values = [v for run in runs if (v := figure.value(run)) is not None]
        spread = figure.better != 0 and figure.text is _metric
        cells.append(
            f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"
            if spread and len(values) == len(runs)
            else ""
        )
    return cells


def options(runs: Sequence[RunRecord]) -> list[Row]:
    """Every option of the runs: those that differ first, then those that are not the default."""
    defaults = {item.name: item.default for item in fields(TrainConfig)}
    names = list(dict.fromkeys(name for run in runs for name in run.config))
    rows = []
    for name in names:
        values = [run.config.get(name, defaults.get(name)) for run in runs]
        changed = any(value != defaults.get(name) for value in values)
        shown = [_option(value) for value in values]
        rows.append(Row(name=name, values=shown, differs=len(set(shown)) > 1, changed=changed))
    return sorted(rows, key=lambda row: (not row.differs, not row.changed))


def environment(runs: Sequence[RunRecord]) -> list[Row]:
    """Store, versions and machines."""
    rows: dict[str, Callable[[RunRecord], str]] = {
        "store": lambda run: str(run.about.get("store", NONE)),
        "fingerprint": lambda run: str(run.about.get("fingerprint", NONE)),
        "run directory": lambda run: str(run.path.resolve()),
        "command": lambda run: _command(run.about.get("command", [])),
        "started": lambda run: f"{run.started:%Y-%m-%d %H:%M}",
        "ranks": lambda run: str(run.num_ranks),
        "hosts": lambda run: _distinct(run, "host", run.about.get("host", NONE)),
        "device": lambda run: _distinct(run, "device"),
        "processor": lambda run: _distinct(run, "processor"),
        "cores": lambda run: _distinct(run, "cores"),
        "threads a rank": lambda run: _distinct(run, "threads"),
        "system": lambda run: _distinct(run, "system"),
    }
    for package in dict.fromkeys(p for run in runs for p in run.about.get("versions", {})):
        rows[package] = lambda run, p=package: run.about.get("versions", {}).get(p, NONE)  # type: ignore[misc]
    return [
        Row(name=name, values=values, differs=len(set(values)) > 1 and name not in ALWAYS_DIFFER)
        for name, text in rows.items()
        if (values := [text(run) for run in runs])
    ]


def ranks_table(run: RunRecord) -> tuple[list[str], list[list[str]]]:
    """Titles, and a row a rank: its part of the graph, its time, its traffic, its memory."""
    titles = [
        "rank",
        "host",
        "vertices",
        "edges",
        "halo",
        "epoch",
        "computing",
        "exchange, exposed",
    ]
    titles += ["reduce", "evaluation", "sent", "received", "peak memory"]
    received = [sum(column) for column in zip(*(r["bytes_to"] for r in run.ranks), strict=True)]
    rows = []
    for rank, got in zip(run.ranks, received, strict=True):
        counts = [f"{rank[key]:,}" for key in ("vertices", "edges", "halo")]
        times = ("epoch_s", "compute_s", "wait_s", "reduce_s", "evaluate_s")
        rows.append(
            [str(rank["rank"]), str(rank["host"]), *counts]
            + [duration(rank[key]) for key in times]
            + [size(sum(rank["bytes_to"])), size(got), size(rank["peak_memory_bytes"])]
        )
    return titles, rows


def _distinct(run: RunRecord, key: str, otherwise: str = NONE) -> str:
    """What ranks say, each answer once."""
    answers = list(dict.fromkeys(str(rank.get(key, NONE)) for rank in run.ranks))
    return ", ".join(answers) or otherwise


def _command(words: Sequence[str]) -> str:
    if not words:
        return NONE
    return shlex.join(["gnndist" if Path(words[0]).name in COMMAND else words[0], *words[1:]])


ALWAYS_DIFFER = ("run directory", "command", "started")
COMMAND = ("gnndist", "__main__.py")


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _halo(run: RunRecord) -> float | None:
    return run.halo / run.vertices if run.halo is not None and run.vertices else None


def _metric(value: float) -> str:
    return f"{value:.4f}"


def _count(value: float) -> str:
    return f"{value:,.0f}"
