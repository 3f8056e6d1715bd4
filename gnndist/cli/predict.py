"""`gnndist predict`: a trained run's predictions in the order of the user's own ids."""

from pathlib import Path
from typing import Any

import click

from gnndist.cli.console import say
from gnndist.cli.host_options import host_options, hosts_from
from gnndist.errors import RunError
from gnndist.launch import is_worker, joined, launchers_copy, pick_device, run_ranks_of
from gnndist.training.run import predict_rank, save_predictions
from gnndist.training.rundir import CONFIG, RunDir
from gnndist.training.shard import check_ranks


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="the .npy to write")
@click.option("--classes", is_flag=True, help="the likeliest class instead of the logits")
@click.option("--ranks", type=click.IntRange(min=1), default=None, help="[as trained]")
@host_options
@click.option("--store", type=click.Path(path_type=Path), help="where the store lies now")
@click.option("--overwrite", is_flag=True, help="replace the file in --out")
def command(
    run: Path,
    out: Path,
    classes: bool,
    ranks: int | None,
    store: Path | None,
    overwrite: bool,
    **reached: Any,
) -> None:
    """Write the predictions of RUN for every vertex, in original order.

    \b
    Example:
      gnndist predict runs/digits --out predictions.npy --classes
    """
    hosts = None if is_worker() else hosts_from(ranks, **reached)
    trained = RunDir.open(launchers_copy(CONFIG) or run)
    trained.check_single()
    config = trained.config()
    opened = trained.store(store, partial=is_worker() or hosts is not None)
    if not is_worker():
        if out.exists() and not overwrite:
            raise RunError(f"{out} exists: choose another --out, or add --overwrite")
        if not out.absolute().parent.is_dir():
            raise RunError(f"{out.parent} is not a directory: --out needs one that exists")
        ranks = hosts.ranks if hosts else ranks or trained.ranks()
        check_ranks(opened, ranks)
        trained.model()
        arguments = ["predict", str(run.absolute()), "--out", str(out.absolute())]
        arguments += ["--store", str(opened.path.absolute()), *(("--classes",) if classes else ())]
        run_ranks_of(arguments, ranks, hosts, run=run, store=opened)
        return
    device = pick_device(config.device)
    terms = {"a store with fingerprint": opened.fingerprint}
    place = joined(device, threads=config.threads, timeout_s=config.timeout, terms=terms)
    with place as comm:
        logits = predict_rank(RunDir(path=run), config, opened, comm, device)
        if logits is not None:
            save_predictions(out, logits, classes=classes)
            what = "classes" if classes else "logits"
            say(f"wrote {what} of {len(logits):,} vertices to {out}")
