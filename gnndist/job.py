"""Training from Python: a job of ranks, its run directory, and how it goes on after a failure."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gnndist.crew import Crew, LocalCrew, Start, start_process
from gnndist.errors import USER_MISTAKE, ConfigError, JobFailed, JobStopped
from gnndist.hosts import Connect, Hosts, HostsCrew, forwarded, run_shell
from gnndist.launch import pick_device, worker_environment
from gnndist.store import Store
from gnndist.supervisor import Supervisor
from gnndist.training.checkpoint import Checkpoints
from gnndist.training.config import TrainConfig
from gnndist.training.loop import make_model
from gnndist.training.rundir import METRICS, RunDir
from gnndist.training.shard import check_ranks, check_trainable
from gnndist.training.state import check_fits, check_same_config
from gnndist.training.tensorboard import check_tensorboard
from gnndist.units import counted

Say = Callable[[str], None]


def train(
    store: Store | Path | str,
    config: TrainConfig | None = None,
    *,
    out: Path | str,
    ranks: int = 1,
    seeds: int = 1,
    overwrite: bool = False,
    max_restarts: int = 0,
    say: Say = print,
    start: Start = start_process,
    hosts: Hosts | None = None,
    connect: Connect = run_shell,
) -> dict[str, Any]:
    """Train a model from a store on ranks, each a process of its own.

    Parameters
    ----------
    store:
        a store, or where it lies.
    config:
        the options; the defaults if None.
    out:
        the run directory to make (`RunDir` says what it holds).
    ranks:
        how many processes.
    seeds:
        trainings, with the config's seed and those that follow; each in a directory of its own.
    overwrite:
        replace a run that lies in `out`.
    max_restarts:
        how often a job that failed is brought back from its last checkpoint.
    say:
        told what a person wants to know, a line at a time.
    start:
        how a rank of this machine is started.
    hosts:
        where the ranks run, and how many on each; None: `ranks` on this machine.
    connect:
        how a remote shell is started.

    Returns
    -------
    what `result.json` holds: the best epoch by validation and its metrics; of several seeds, the
    mean and standard deviation.

    Raises
    ------
    GnndistError
        something is not allowed; nothing was written.
    JobFailed
        a rank failed, or training diverged; no process is left. What was saved is resumable.
    JobStopped
        SIGTERM or SIGINT stopped it after an epoch, which is saved.
    """
    config = config or TrainConfig()
    opened = store if isinstance(store, Store) else Store.open(store, partial=hosts is not None)
    ranks = hosts.ranks if hosts else ranks
    check(opened, config, ranks, here=hosts is None)
    run = _new_run(out, overwrite)
    several = [config.seed + k for k in range(seeds)] if seeds > 1 else []
    run.write_config(config, opened, ranks, several)
    who = counted(ranks, "rank") + (f" on {len(hosts.names)} hosts" if hosts else "")
    say(f"training {config.model} on {opened.path} with {who}; the run goes to {out}")
    arguments = ["train", *_store_for(hosts, opened), "--out", str(run.path.absolute())]
    crew = hosts and HostsCrew(hosts=hosts, store=opened, run=run.path, say=say, connect=connect)
    try:
        return _run(run, arguments, max_restarts, say, crew or LocalCrew(ranks, start))
    except JobFailed as error:
        if error.code == USER_MISTAKE and not list(run.path.rglob(METRICS)):
            shutil.rmtree(run.path, ignore_errors=True)
        raise


def resume(
    run: RunDir | Path | str,
    *,
    store: Path | str | None = None,
    ranks: int | None = None,
    max_restarts: int = 0,
    say: Say = print,
    start: Start = start_process,
    hosts: Hosts | None = None,
    connect: Connect = run_shell,
    **changes: Any,
) -> dict[str, Any]:
    """Continue a training from its last checkpoint, on any number of ranks.

    Parameters
    ----------
    run:
        the run directory.
    store:
        where the store lies now.
    ranks:
        how many processes; as before if None. On as many as before, the rest of the training is
        what it would have been, bit for bit; on another number, to rounding.
    hosts:
        where the ranks run, as for `train`.
    changes:
        options of other values. Only those that do not change what is learnt from the epochs so
        far (such as `epochs`, `threads`, `timeout`) are allowed.

    Raises
    ------
    GnndistError
        the store, config or checkpoint does not fit the run.
    JobFailed, JobStopped
        as `train` does.
    """
    run = run if isinstance(run, RunDir) else RunDir.open(run)
    before = run.config()
    opened = run.store(store, partial=hosts is not None)
    config = TrainConfig.from_dict(before.to_dict() | changes)
    check_same_config(before.to_dict(), config, f"{run.path}")
    ranks = hosts.ranks if hosts else ranks or run.ranks()
    check(opened, config, ranks, here=hosts is None)
    seeds = run.seeds()
    since = "its checkpoints" if seeds else "the beginning"
    for one in [run.of_seed(seed) for seed in seeds] or [run]:
        newest = Checkpoints(one.checkpoints).newest(say)
        if newest is not None:
            check_fits(newest, replace(config, seed=one.config().seed), opened.fingerprint)
            since = since if seeds else f"epoch {newest.epoch}"
    if run.has_result and (seeds or run.result()["epochs"] >= config.epochs):
        say(f"{run.path} has finished: nothing to resume (more --epochs would continue it)")
        return run.result()
    with run.locked():  # a run that is being trained keeps its own
        run.write_config(config, opened, ranks, seeds)
    say(f"resuming {run.path} from {since} with {counted(ranks, 'rank')}")
    arguments = ["train", *_store_for(hosts, opened), "--resume", str(run.path.absolute())]
    crew = hosts and HostsCrew(hosts=hosts, store=opened, run=run.path, say=say, connect=connect)
    return _run(run, arguments, max_restarts, say, crew or LocalCrew(ranks, start))


def check(store: Store, config: TrainConfig, ranks: int, *, here: bool = True) -> None:
    """Everything that can be known before a process starts or a file is written.

    `here`: the ranks run on this machine.

    Raises
    ------
    GnndistError
        naming what is not allowed.
    """
    check_ranks(store, ranks)
    check_trainable(store)
    if here:
        pick_device(config.device)
    if config.tensorboard:
        check_tensorboard()
    if store.manifest.split_sizes.get("valid", 0) == 0:
        if config.patience:
            raise ConfigError(f"patience = {config.patience}: {store.path} has no validation split")
        if config.schedule == "plateau":
            raise ConfigError(f"schedule = 'plateau': {store.path} has no validation split")
    with torch.random.fork_rng(devices=[]):
        make_model(store, config)


def _store_for(hosts: Hosts | None, store: Store) -> list[str]:
    """Where ranks on several hosts find the store: links may lead elsewhere there."""
    return [str(store.path.absolute())] if hosts else []


def _new_run(out: Path | str, overwrite: bool) -> RunDir:
    """A new run directory; one that is being trained is not replaced."""
    old = RunDir(path=Path(out))
    with old.locked() if overwrite and old.path.is_dir() else nullcontext():
        return RunDir.create(out, overwrite=overwrite)


def _run(
    run: RunDir, arguments: Sequence[str], max_restarts: int, say: Say, crew: Crew
) -> dict[str, Any]:
    """Run a job to its end; the result it has written."""
    ranks, config = run.ranks(), run.config()
    job = Supervisor(
        arguments=arguments,
        ranks=ranks,
        environment=forwarded() if isinstance(crew, HostsCrew) else worker_environment(ranks),
        logs=run.logs,
        timeout_s=config.timeout,
        max_restarts=max_restarts,
        on_restart=lambda why, attempt: say(f"{why}; restart {attempt} of {max_restarts}"),
        crew=crew,
    )
    try:
        with run.locked():
            run.forget_end()
            job.run()
    except JobStopped as error:
        run.note_end("stopped", str(error))
        raise JobStopped(f"{error}{_how_to_go_on(run)}", error.code) from None
    except JobFailed as error:
        run.note_end("failed", str(error))
        if error.code == USER_MISTAKE:
            raise
        raise JobFailed(f"{error}{_how_to_go_on(run)}", error.code) from None
    return run.result()


def _how_to_go_on(run: RunDir) -> str:
    """What the end of a message says of what was saved."""
    if not list(run.path.rglob("epoch-*")):
        return "; no checkpoint yet"
    epochs = Checkpoints(run.checkpoints).epochs()
    saved = f"epoch {epochs[-1]} is saved" if epochs else "its checkpoints are saved"
    return f"; {saved}: continue with `gnndist train --resume {run.path}`"
