"""A whole run: train, keep the best epoch, write the figures; evaluate and predict from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnndist.comm import Comm
from gnndist.errors import RunError
from gnndist.official import official_figures
from gnndist.status import Status
from gnndist.store import Store
from gnndist.tasks import task
from gnndist.training.checkpoint import Checkpoints
from gnndist.training.config import TrainConfig
from gnndist.training.disk import writing
from gnndist.training.gradients import broadcast_state
from gnndist.training.keeper import Keeper
from gnndist.training.loop import Trainer, make_model
from gnndist.training.profile import Profile
from gnndist.training.rundir import RunDir
from gnndist.training.shard import load_shard
from gnndist.training.state import check_fits, restore, share
from gnndist.training.tally import rank_figures
from gnndist.training.tensorboard import TensorBoard

Line = dict[str, Any]


def train_rank(
    store: Store,
    config: TrainConfig,
    run: RunDir,
    comm: Comm,
    device: torch.device,
    on_epoch: Callable[[Line], None],
    *,
    resume: bool = False,
    warn: Callable[[str], None] = print,
    status: Status | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Line:
    """Train as one rank of a job; rank 0 writes the run directory. Returns the result.

    Parameters
    ----------
    resume:
        go on from the newest checkpoint that is whole, if there is one.
    warn:
        told, on rank 0, of a checkpoint that is not.
    stop:
        whether to stop after the epoch; one rank's word is enough.

    Raises
    ------
    Stopped
        after an epoch that was saved, because `stop` came true.
    Diverged
        if the loss or a gradient is not finite.
    RunError
        if the checkpoint is of another graph, model or config, or the run directory cannot be
        written to.
    """
    profile = Profile(comm, device, config.epochs) if config.profile else None
    trainer = Trainer.create(
        store, config, profile.comm if profile else comm, device, status=status
    )
    if profile is not None:
        trainer.around_step = profile.epoch
    if resume:
        _continue(trainer, store, run, warn)
    keeper = Keeper(run, store.fingerprint) if comm.rank == 0 else None
    lines: list[Line] = list(run.metrics()) if comm.rank == 0 else []
    board = None
    if config.tensorboard and comm.rank == 0:
        board = TensorBoard(run.tensorboard, after=trainer.epoch)
    warm_up = {1, trainer.epoch + 1}

    def record(line: Line) -> None:
        lines.append(line)
        if keeper is not None:
            with keeper.guarding(trainer, "the figures"):
                run.append_metrics(line)
                if board is not None:
                    board(line)
        on_epoch(line)

    best = trainer.run(record, keeper=keeper, stop=stop)
    trainer.status.enter("results")
    result = _result(trainer, store, lines, warm_up) | _official(trainer, store)
    ranks = rank_figures(comm, trainer.shard.graph, trainer.tally)
    profiled = profile.finish(run.trace) if profile else None
    if keeper is not None:
        keeper.save(trainer)
        with keeper.guarding(trainer, "the results"):
            if board is not None:
                board.close()
            if profiled is not None:
                run.write_profile(profiled)
            run.write_ranks(ranks)
            run.write_model(best.state or trainer.model.state_dict())
            run.write_result(result)
    return result


def _continue(trainer: Trainer, store: Store, run: RunDir, warn: Callable[[str], None]) -> None:
    """Bring every rank to where the newest whole checkpoint left off."""
    comm = trainer.comm
    newest = Checkpoints(run.checkpoints).newest(warn) if comm.rank == 0 else None
    newest = share(newest, comm, trainer.x.device)
    if newest is not None:
        check_fits(newest, trainer.config, store.fingerprint)
        restore(trainer, newest)
    if comm.rank == 0:
        Checkpoints(run.checkpoints).go_on_from(trainer.epoch)
        with writing("the figures", run.path):
            run.trim_metrics(trainer.epoch)


def _result(trainer: Trainer, store: Store, lines: list[Line], warm_up: set[int]) -> Line:
    """The figures of a finished run; `lines` are those of all epochs on rank 0.

    The epochs in `warm_up` also warm caches up: the mean leaves them out where it can.
    """
    comm, best = trainer.comm, trainer.best
    halo = torch.tensor([trainer.shard.graph.part.halo_size()], device=trainer.x.device)
    comm.all_reduce(halo)
    steady = [line for line in lines if line["epoch"] not in warm_up] or lines
    return {
        "best_epoch": best.epoch,
        **(best.metrics or {}),
        "ranks": comm.world,
        "epochs": trainer.epoch,
        "mean_epoch_s": sum(line["epoch_s"] for line in steady) / max(1, len(steady)),
        "bytes_sent_per_epoch": lines[-1]["bytes_sent"] if lines else 0,
        "halo": int(halo),
        "vertices": store.num_vertices,
    }


def _official(trainer: Trainer, store: Store) -> Line:
    """What OGB's evaluator says of the best epoch, for a data set that has one."""
    evaluator = store.manifest.evaluator
    if evaluator is None or trainer.best.state is None:
        return {}
    last = {k: v.detach().clone() for k, v in trainer.model.state_dict().items()}
    trainer.model.load_state_dict(trainer.best.state)
    logits, shard = trainer.logits(), trainer.shard
    trainer.model.load_state_dict(last)
    return dict(official_figures(evaluator, logits, shard.labels, shard.split, trainer.comm))


def evaluate_rank(
    run: RunDir, config: TrainConfig, store: Store, comm: Comm, device: torch.device
) -> Line:
    """The saved model's metrics, computed as one rank of a job of any size.

    Only rank 0 reads the run directory; `config` is the run's.
    """
    logits, shard = _saved_logits(run, config, store, comm, device)
    known = (logits, shard.labels, shard.split, comm)
    metrics = task(store.manifest.task).metrics(*known)
    if store.manifest.evaluator is not None:
        metrics |= official_figures(store.manifest.evaluator, *known)
    return dict(metrics)


def predict_rank(
    run: RunDir, config: TrainConfig, store: Store, comm: Comm, device: torch.device
) -> NDArray[np.float32] | None:
    """The saved model's logits by original id, [N, outputs], on rank 0; None elsewhere."""
    logits, shard = _saved_logits(run, config, store, comm, device)
    mine = (shard.original_ids, logits.float().cpu().numpy())
    parts = comm.swap([mine if rank == 0 else None for rank in range(comm.world)])
    if comm.rank != 0:
        return None
    out = np.empty((store.num_vertices, logits.shape[1]), np.float32)
    for ids, rows in parts:
        out[ids] = rows
    return out


def _saved_logits(
    run: RunDir, config: TrainConfig, store: Store, comm: Comm, device: torch.device
) -> Any:
    dtype = getattr(torch, config.dtype)
    shard = load_shard(store, comm, device=device, dtype=dtype, seed=config.seed)
    model = make_model(store, config).to(device=device, dtype=dtype)
    if comm.rank == 0:  # only its host need have the run directory
        try:
            model.load_state_dict(run.model())
        except RuntimeError as error:
            raise RunError(f"the model in {run.path} does not fit its config: {error}") from error
    broadcast_state(model, comm)
    model.eval()
    with torch.no_grad():
        return model(shard.graph, shard.features), shard


def save_predictions(path: Path, logits: NDArray[np.float32], *, classes: bool) -> None:
    """Write logits, or the index of the largest, as an .npy file."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        np.save(file, logits.argmax(axis=1) if classes else logits)
    partial.replace(path)
