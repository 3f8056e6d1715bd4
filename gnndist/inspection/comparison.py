"""A prediction beside what a run has measured, rank by rank."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table

from gnndist.errors import RunError
from gnndist.inspection.prediction import Inspection, imbalance
from gnndist.inspection.tables import MOST_RANKS
from gnndist.training.rundir import RANKS, RunDir
from gnndist.units import duration, size


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What each rank of a run measured; [ranks]."""

    epoch_s: NDArray[np.float64]
    work_s: NDArray[np.float64]
    """of an epoch, not blocked"""
    core_s: NDArray[np.float64] | None
    """of processors, in an epoch; None in a run of before they were kept"""
    blocked_s: NDArray[np.float64]
    """waiting for messages, and in all-reduces"""
    sent: NDArray[np.float64]
    """bytes an epoch"""
    memory: NDArray[np.float64]
    """bytes at most"""
    ranks_per_host: int

    @property
    def ranks(self) -> int:
        return len(self.epoch_s)


def read_measured(run: RunDir) -> Measured:
    """The figures of a finished run.

    Raises
    ------
    RunError
        it has none yet.
    """
    try:
        ranks = json.loads((run.path / RANKS).read_text())["ranks"]
    except (OSError, ValueError, KeyError):
        raise RunError(f"{run.path} has no {RANKS}: the run has not finished") from None

    def figures(name: str) -> NDArray[np.float64]:
        return np.array([rank[name] for rank in ranks], np.float64)

    return Measured(
        epoch_s=figures("epoch_s"),
        work_s=figures("compute_s"),
        core_s=figures("cpu_s") if all("cpu_s" in rank for rank in ranks) else None,
        blocked_s=figures("wait_s") + figures("reduce_s"),
        sent=np.array([sum(rank["bytes_to"]) for rank in ranks], np.float64),
        memory=figures("peak_memory_bytes"),
        ranks_per_host=max(Counter(rank["host"] for rank in ranks).values()),
    )


def _columns(found: Inspection, measured: Measured) -> dict[str, tuple[Any, Any]]:
    """Figure → (predicted, measured), [ranks] each."""
    figures = found.model
    assert figures is not None
    epoch = figures.epoch
    cores = {} if measured.core_s is None else {"cores": (epoch.core_s, measured.core_s)}
    return cores | {
        "work": (epoch.busy_s, measured.work_s),
        "blocked": (epoch.wait_s + epoch.reduce_s, measured.blocked_s),
        "sent": (figures.sent.sum(axis=1).astype(float), measured.sent),
        "memory": (figures.memory.rank.astype(float), measured.memory),
    }


def comparison_table(found: Inspection, measured: Measured) -> Table:
    """Predicted / measured, a row a rank: of many, those with most work."""
    columns = _columns(found, measured)
    shown = dict(columns)
    if "cores" in shown:
        del shown["work"]  # by the clock, which other programs on the machine slow down
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rank", no_wrap=True)
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column("measured", justify="right", no_wrap=True)
    order = np.argsort(-measured.work_s, kind="stable")[:MOST_RANKS]
    for rank in np.sort(order):
        cells = []
        for name, (predicted, seen) in shown.items():
            form = size if name in ("sent", "memory") else duration
            cells += [form(float(predicted[rank])), form(float(seen[rank]))]
        table.add_row(f"{rank:,}", *cells)
    assert found.model is not None
    predicted_s, measured_s = found.model.epoch.epoch_s, float(measured.epoch_s.max())
    table.caption = (
        f"epoch: predicted {duration(predicted_s)}, measured {duration(measured_s)}, "
        f"÷ {predicted_s / measured_s:.2f}; busiest rank ÷ mean, predicted and measured: "
        + ", ".join(
            f"{name} {imbalance(columns[name][0]):.2f} and {imbalance(columns[name][1]):.2f}"
            for name in ("cores", "work")
            if name in columns
        )
    )
    table.caption_justify = "left"
    return table


def comparison_data(found: Inspection, measured: Measured) -> dict[str, Any]:
    """The same for scripts."""
    assert found.model is not None
    data: dict[str, Any] = {
        name: {"predicted": predicted.tolist(), "measured": seen.tolist()}
        for name, (predicted, seen) in _columns(found, measured).items()
    }
    data["epoch_s"] = {
        "predicted": found.model.epoch.epoch_s,
        "measured": float(measured.epoch_s.max()),
    }
    return data
