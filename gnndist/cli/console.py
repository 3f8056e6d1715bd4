"""What the command line says: lines, and tables of figures."""

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from gnndist.graph import SPLITS
from gnndist.store import Store
from gnndist.tasks import task
from gnndist.training.config import TrainConfig
from gnndist.units import counted, duration, size

console = Console(highlight=False, soft_wrap=True)


def say(line: str) -> None:
    """One line for the person who runs the command."""
    console.print(line, markup=False)
    sys.stdout.flush()


def result_table(result: Mapping[str, Any], task_name: str) -> None:
    """The figures of a finished run."""
    metric = task(task_name).metric
    table = Table(show_header=False)
    table.add_row("best epoch (by validation)", str(result["best_epoch"]))
    for split in SPLITS:
        if (key := f"{split}_{metric}") in result:
            table.add_row(f"{split} {metric}", f"{result[key]:.4f}")
    for split in SPLITS:
        for key, value in result.items():
            if key.startswith(f"{split}_ogb_"):
                name = key.removeprefix(f"{split}_ogb_")
                table.add_row(f"{split} {name} (OGB's evaluator)", f"{value:.4f}")
    halo = result["halo"]
    table.add_row("epoch time", duration(result["mean_epoch_s"]))
    table.add_row("exchanged an epoch", size(result["bytes_sent_per_epoch"]))
    table.add_row("halo", f"{halo:,} vertices ({halo / result['vertices']:.3f} of all)")
    table.add_row("ranks", str(result["ranks"]))
    console.print(table)


def seeds_table(summary: Mapping[str, Any], task_name: str) -> None:
    """The figures of a run of several seeds, as leaderboards want them."""
    metric = task(task_name).metric
    percent = 100 if task(task_name).higher_is_better else 1
    table = Table(show_header=False)
    table.add_row("seeds", ", ".join(map(str, summary["seeds"])))
    for split in SPLITS:
        if (key := f"{split}_{metric}") in summary["mean"]:
            mean, std = percent * summary["mean"][key], percent * summary["std"][key]
            table.add_row(f"{split} {metric}", f"{mean:.2f} ± {std:.2f}")
    table.add_row("epoch time", duration(summary["mean_epoch_s"]))
    table.add_row("ranks", str(summary["ranks"]))
    console.print(table)


def metrics_table(metrics: Mapping[str, float]) -> None:
    """Metrics, a row a split."""
    names = list(dict.fromkeys(key.partition("_")[2] for key in metrics))
    table = Table("split", *names)
    for split in SPLITS:
        table.add_row(split, *(f"{metrics[f'{split}_{name}']:.4f}" for name in names))
    console.print(table)


def explain_savings(store: Store, config: TrainConfig, ranks: int) -> None:
    """Each layer's choices and what each exact saving saves."""
    from gnndist.inspection.explain import explain, explanation_tables

    say(f"{config.model}, {config.layers} layers, on {store.path} with {counted(ranks, 'rank')}")
    for table in explanation_tables(explain(store, config, ranks), store.num_vertices):
        console.print(table)
    say("overlap and the order of work change no bytes; switch a saving off with --no-NAME")
