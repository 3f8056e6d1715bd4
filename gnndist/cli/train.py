"""`gnndist train`: a model from a store, on any number of ranks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from gnndist import job
from gnndist.cli.console import explain_savings, result_table, say, seeds_table
from gnndist.cli.host_options import host_options, hosts_from
from gnndist.cli.live import EpochView
from gnndist.cli.long_help import LongHelp
from gnndist.cli.options import config_options, given
from gnndist.cli.profile_table import show_profile
from gnndist.errors import STOPPED, ConfigError
from gnndist.launch import (
    is_worker,
    joined,
    launched_here,
    launchers_copy,
    own_status,
    pick_device,
    restarts,
    stop_requests,
)
from gnndist.store import Store
from gnndist.training.config import TrainConfig
from gnndist.training.config_files import combined, read_all
from gnndist.training.loop import Stopped
from gnndist.training.rundir import CONFIG, RunDir
from gnndist.training.seeds import train_seeds
from gnndist.units import counted

Progress = Callable[[dict[str, Any]], None]

USUAL = (
    *("ranks", "hosts", "ranks_per_host", "out", "overwrite", "resume", "files", "seeds"),
    "max_restarts",
    *("model", "layers", "hidden", "dropout", "norm", "epochs", "seed", "lr", "weight_decay"),
    *("eval_every", "checkpoint_every", "device", "threads", "profile", "explain"),
)
"""options that --help lists; --help-all lists all"""
SECTIONS = {
    "model": "Model",
    "epochs": "Training",
    "optimizer": "Optimiser",
    "schedule": "Learning rate",
    "eval_every": "Evaluation",
    "checkpoint_every": "Checkpoints",
    "dtype": "Machine",
    "linear_first": "Exact savings (results do not depend on them)",
    "profile": "Records",
}
"""the option at which a section of --help-all begins"""


@click.command(cls=LongHelp, usual=USUAL, sections=SECTIONS)
@click.argument("store", type=click.Path(path_type=Path), required=False)
@click.option("--ranks", type=click.IntRange(min=1), help="worker processes  [1, or as before]")
@host_options
@click.option("--out", type=click.Path(path_type=Path), help="run directory to make")
@click.option("--overwrite", is_flag=True, help="replace the run in --out")
@click.option("--resume", type=click.Path(path_type=Path), help="run directory to continue")
@click.option(
    "--config",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="TOML file of options; of several, later ones win",
)
@click.option("--explain", is_flag=True, help="say what the exact savings do; do not train")
@click.option("--seeds", type=click.IntRange(min=1), help="trainings, each with its seed  [1]")
@click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    default=0,
    help="of a failed job, from its last checkpoint  [0]",
)
@config_options(TrainConfig)
def command(
    store: Path | None,
    ranks: int | None,
    out: Path | None,
    overwrite: bool,
    resume: Path | None,
    files: tuple[Path, ...],
    explain: bool,
    seeds: int | None,
    max_restarts: int,
    hosts: str | None,
    ranks_per_host: int | None,
    remote_shell: str | None,
    remote_python: str | None,
    port: int | None,
    **options: Any,
) -> None:
    """Train a model on STORE with N ranks.

    \b
    Examples:
      gnndist train stores/digits --ranks 2 --out runs/digits
      gnndist train stores/cora --config datasets/cora/gcn.toml --seeds 10 --out runs/cora
      gnndist train --resume runs/digits --ranks 4
      gnndist train stores/digits --hosts a,b --ranks-per-host 4 --out runs/digits
    Inside torchrun (or whatever sets RANK and WORLD_SIZE) it joins that job. SIGTERM and
    SIGINT (Ctrl-C) let the epoch finish, save it and exit with code 75.
    """
    if explain:
        if store is None or resume is not None:
            raise ConfigError("--explain needs STORE, and is not for --resume")
        explain_savings(Store.open(store), combined(files, given(options)), ranks or 2)
        return
    if (out is None) == (resume is None):
        raise ConfigError(
            "train needs one of --out (a new run directory) and --resume (one to continue)"
        )
    if resume is None and store is None and not launched_here():
        raise ConfigError("train needs STORE, the directory that `gnndist partition` made")
    if resume is not None and (seeds is not None or overwrite):
        raise ConfigError("--seeds and --overwrite are for a new run, not with --resume")
    if is_worker():
        _work(store, out, resume, overwrite, seeds or 1, lambda: combined(files, given(options)))
        return
    places = hosts_from(
        ranks,
        hosts,
        ranks_per_host,
        remote_shell=remote_shell,
        remote_python=remote_python,
        port=port,
    )
    if resume is not None:
        changes = read_all(files) | given(options)
        result = job.resume(
            resume,
            store=store,
            ranks=ranks,
            hosts=places,
            max_restarts=max_restarts,
            say=say,
            **changes,
        )
        _show(RunDir.open(resume), result)
    elif store is not None and out is not None:
        result = job.train(
            store,
            combined(files, given(options)),
            out=out,
            ranks=ranks or 1,
            hosts=places,
            seeds=seeds or 1,
            overwrite=overwrite,
            max_restarts=max_restarts,
            say=say,
        )
        _show(RunDir.open(out), result)


def _work(
    store: Path | None,
    out: Path | None,
    resume: Path | None,
    overwrite: bool,
    seeds: int,
    config_from_command: Callable[[], TrainConfig],
) -> None:
    """Train as one rank of a job."""
    again = resume is not None or restarts() > 0
    path = resume or out
    assert path is not None
    run = RunDir(path=path)
    if launched_here() or resume is not None:
        # Only rank 0's host need have the run directory; launchers pass on what it says.
        told = RunDir.open(launchers_copy(CONFIG) or path)
        config, opened, all_seeds = told.config(), told.store(store, partial=True), told.seeds()
    else:
        config = config_from_command()
        assert store is not None
        opened = Store.open(store, partial=True)
        all_seeds = [config.seed + k for k in range(seeds)] if seeds > 1 else []
    device, status = pick_device(config.device), own_status()
    place = joined(
        device,
        threads=config.threads,
        timeout_s=config.timeout,
        status=status,
        logs=run.logs,
        terms={"a store with fingerprint": opened.fingerprint, **config.shared()},
    )
    with stop_requests() as stop, place as comm:
        speaks = comm.rank == 0
        if speaks and not launched_here() and not (again and (path / CONFIG).is_file()):
            job.check(opened, config, comm.world)
            RunDir.create(path, overwrite=overwrite)
            run.write_config(config, opened, comm.world, all_seeds)

        @contextmanager
        def view(its: TrainConfig) -> Iterator[Progress]:
            if not speaks:
                yield lambda line: None
                return
            ranks = counted(comm.world, "rank")
            title = f"{its.model} on {opened.path.name}, {ranks}, seed {its.seed}"
            if all_seeds:
                say(f"seed {its.seed}")
            shown = EpochView(title, its.epochs, opened.manifest.task)
            with shown.shown():
                yield shown

        stopped: Stopped | None = None
        try:
            train_seeds(
                opened,
                config,
                run,
                all_seeds,
                comm,
                device,
                view,
                resume=again,
                warn=say,
                status=status,
                stop=stop,
            )
        except Stopped as request:
            stopped = request
            comm.all_gather(None)  # no launcher must see a rank end before rank 0 has saved
    if speaks and not launched_here():
        if stopped is None:
            _show(run, run.result())
        else:
            say(f"{stopped}, which is saved: continue with --resume {path}")
    if stopped is not None:
        sys.exit(STOPPED)


def _show(run: RunDir, result: dict[str, Any]) -> None:
    """What the training came to."""
    task_name = run.store(partial=True).manifest.task
    if "seeds" in result:
        seeds_table(result, task_name)
        return
    result_table(result, task_name)
    if run.config().profile:
        show_profile(run)
