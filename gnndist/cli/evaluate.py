"""`gnndist evaluate`: the metrics of a trained run, computed again on any number of ranks."""

from pathlib import Path

import click

from gnndist.cli.console import metrics_table, say
from gnndist.launch import is_worker, joined, pick_device, run_ranks_of
from gnndist.training.run import evaluate_rank
from gnndist.training.rundir import RunDir
from gnndist.training.shard import check_ranks
from gnndist.units import counted


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--ranks", type=click.IntRange(min=1), default=None, help="[as trained]")
@click.option("--store", type=click.Path(path_type=Path), help="where the store lies now")
def command(run: Path, ranks: int | None, store: Path | None) -> None:
    """Recompute the metrics of RUN from its saved model.

    \b
    Example:
      gnndist evaluate runs/digits --ranks 4
    """
    trained = RunDir.open(run)
    trained.check_single()
    config = trained.config()
    opened = trained.store(store)
    device = pick_device(config.device)
    if not is_worker():
        ranks = ranks or trained.ranks()
        check_ranks(opened, ranks)
        result = trained.result()
        trained.model()
        say(f"evaluating {run} (epoch {result['best_epoch']}) with {counted(ranks, 'rank')}")
        run_ranks_of(["evaluate", str(run), *(("--store", str(store)) if store else ())], ranks)
        return
    with joined(device, threads=config.threads, timeout_s=config.timeout) as comm:
        metrics = evaluate_rank(trained, opened, comm, device)
        if comm.rank == 0:
            metrics_table(metrics)
