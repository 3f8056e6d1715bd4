"""`gnndist evaluate`: the metrics of a trained run, computed again on any number of ranks."""

from pathlib import Path
from typing import Any

import click

from gnndist.cli.console import metrics_table, say
from gnndist.cli.host_options import host_options, hosts_from
from gnndist.launch import is_worker, joined, launchers_copy, pick_device, run_ranks_of
from gnndist.training.run import evaluate_rank
from gnndist.training.rundir import CONFIG, RunDir
from gnndist.training.shard import check_ranks
from gnndist.units import counted


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--ranks", type=click.IntRange(min=1), default=None, help="[as trained]")
@host_options
@click.option("--store", type=click.Path(path_type=Path), help="where the store lies now")
def command(run: Path, ranks: int | None, store: Path | None, **reached: Any) -> None:
    """Recompute the metrics of RUN from its saved model.

    \b
    Example:
      gnndist evaluate runs/digits --ranks 4
    """
    hosts = None if is_worker() else hosts_from(ranks, **reached)
    trained = RunDir.open(launchers_copy(CONFIG) or run)
    trained.check_single()
    config = trained.config()
    opened = trained.store(store, partial=is_worker() or hosts is not None)
    if not is_worker():
        ranks = hosts.ranks if hosts else ranks or trained.ranks()
        check_ranks(opened, ranks)
        result = trained.result()
        trained.model()
        say(f"evaluating {run} (epoch {result['best_epoch']}) with {counted(ranks, 'rank')}")
        arguments = ["evaluate", str(run.absolute()), "--store", str(opened.path.absolute())]
        run_ranks_of(arguments, ranks, hosts, run=run, store=opened)
        return
    device = pick_device(config.device)
    terms = {"a store with fingerprint": opened.fingerprint}
    place = joined(device, threads=config.threads, timeout_s=config.timeout, terms=terms)
    with place as comm:
        metrics = evaluate_rank(RunDir(path=run), config, opened, comm, device)
        if comm.rank == 0:
            metrics_table(metrics)
