"""`gnndist train`: a model from a store, on any number of ranks."""

import sys
from pathlib import Path
from typing import Any

import click

from gnndist.cli.console import EpochLines, result_table, say
from gnndist.cli.options import config_options, given
from gnndist.cli.profile_table import show_profile
from gnndist.launch import is_worker, joined, launched_here, pick_device, run_ranks_of
from gnndist.store import Store
from gnndist.training.config import TrainConfig
from gnndist.training.run import train_rank
from gnndist.training.rundir import RunDir
from gnndist.training.shard import check_ranks


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--ranks", type=click.IntRange(min=1), default=1, help="worker processes  [1]")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="run directory")
@click.option("--overwrite", is_flag=True, help="replace the run in --out")
@config_options(TrainConfig)
def command(store: Path, ranks: int, out: Path, overwrite: bool, **options: Any) -> None:
    """Train a model on STORE with N ranks.

    \b
    Example:
      gnndist train stores/digits --ranks 2 --out runs/digits
    Inside torchrun (or whatever sets RANK and WORLD_SIZE) it joins that job.
    """
    config = TrainConfig(**given(options))
    device = pick_device(config.device)
    opened = Store.open(store)
    if not is_worker():
        check_ranks(opened, ranks)
        run = RunDir.create(out, overwrite=overwrite)
        run.write_config(config, opened, ranks)
        say(f"training {config.model} on {store} with {ranks} ranks; the run goes to {out}")
        run_ranks_of(sys.argv[1:], ranks)
        return
    with joined(device, threads=config.threads) as comm:
        run = RunDir(path=out)
        if comm.rank == 0 and not launched_here():
            check_ranks(opened, comm.world)
            run = RunDir.create(out, overwrite=overwrite)
            run.write_config(config, opened, comm.world)
        lines = EpochLines(config.epochs, opened.manifest.task, speak=comm.rank == 0)
        with lines:
            result = train_rank(opened, config, run, comm, device, lines)
        if comm.rank == 0:
            result_table(result, opened.manifest.task)
            if config.profile:
                show_profile(run)
