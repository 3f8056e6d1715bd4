"""Training's state as a checkpoint, and back."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gnndist.comm import Comm
from gnndist.errors import RunError
from gnndist.training.checkpoint import Checkpoint, pack, unpack
from gnndist.training.config import TrainConfig

if TYPE_CHECKING:
    from gnndist.training.loop import Trainer


def capture(trainer: "Trainer", fingerprint: str) -> Checkpoint:
    """Everything that the coming epochs depend on.

    Dropout masks are functions of (seed, epoch, layer, vertex, feature), so no generator has a
    state to keep.
    """
    tensors = {f"model.{k}": v for k, v in trainer.model.state_dict().items()}
    numbers: dict[str, Any] = {}
    for index, state in trainer.optimizer.state_dict()["state"].items():
        for key, value in state.items():
            where = tensors if isinstance(value, Tensor) else numbers
            where[f"optimizer.{index}.{key}"] = value
    tensors |= {f"best.{k}": v for k, v in (trainer.best.state or {}).items()}
    return Checkpoint(
        epoch=trainer.epoch,
        tensors=tensors,
        values={
            "config": trainer.config.to_dict(),
            "fingerprint": fingerprint,
            "schedule": trainer.schedule.state(),
            "optimizer": numbers,
            "best": {"epoch": trainer.best.epoch, "metrics": trainer.best.metrics},
        },
    )


def restore(trainer: "Trainer", checkpoint: Checkpoint) -> None:
    """Continue after the epoch of a checkpoint.

    Raises
    ------
    RunError
        if the model is not the one it was taken from.
    """
    model = _part(checkpoint, "model.")
    check_model(checkpoint.epoch, model, trainer.model.state_dict())
    trainer.model.load_state_dict(model)
    state: dict[int, dict[str, Any]] = {}
    optimizer = _part(checkpoint, "optimizer.") | {
        name.removeprefix("optimizer."): value
        for name, value in checkpoint.values["optimizer"].items()
    }
    for name, value in optimizer.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    groups = trainer.optimizer.state_dict()["param_groups"]
    trainer.optimizer.load_state_dict({"state": state, "param_groups": groups})
    trainer.schedule.load_state(checkpoint.values["schedule"])
    device = trainer.x.device
    best = {k: v.to(device) for k, v in _part(checkpoint, "best.").items()}
    trainer.best.epoch = checkpoint.values["best"]["epoch"]
    trainer.best.metrics = checkpoint.values["best"]["metrics"]
    trainer.best.state = best or None
    trainer.epoch = checkpoint.epoch


def share(checkpoint: Checkpoint | None, comm: Comm, device: torch.device) -> Checkpoint | None:
    """Rank 0's checkpoint on every rank: only its host needs the run directory."""
    content = b"" if checkpoint is None else pack(checkpoint.tensors)
    mine = None if checkpoint is None else (checkpoint.epoch, checkpoint.values, len(content))
    head = comm.all_gather(mine)[0]
    if comm.world == 1 or head is None:
        return checkpoint
    epoch, values, size = head
    buffer = torch.zeros(size, dtype=torch.uint8)
    if comm.rank == 0:
        buffer = torch.from_numpy(np.frombuffer(content, np.uint8).copy())
    buffer = buffer.to(device)
    comm.all_reduce(buffer)
    return Checkpoint(epoch=epoch, values=values, tensors=unpack(buffer.cpu().numpy().tobytes()))


def check_fits(checkpoint: Checkpoint, config: TrainConfig, fingerprint: str) -> None:
    """Refuse a checkpoint of another graph or config, both values shown.

    Raises
    ------
    RunError
        naming what differs.
    """
    then = checkpoint.values["fingerprint"]
    if then != fingerprint:
        raise RunError(
            f"the checkpoint of epoch {checkpoint.epoch} was trained on a store with fingerprint "
            f"{then}: this one has {fingerprint}"
        )
    check_same_config(checkpoint.values["config"], config, f"epoch {checkpoint.epoch}'s checkpoint")


def check_same_config(then: dict[str, Any], config: TrainConfig, what: str) -> None:
    """Refuse a config that gives other results than the one a run was started with."""
    now = config.to_dict()
    # A cosine ends with the last epoch, so all of it depends on how many there are.
    moving = {"epochs"} if config.schedule == "cosine" else set()
    for item in fields(config):
        if item.metadata["option"].may_change and item.name not in moving:
            continue
        before = then.get(item.name, item.default)
        if before != now[item.name]:
            raise RunError(
                f"{item.name} = {now[item.name]!r}, but {what} has {item.name} = {before!r}: "
                "a resumed run keeps its config"
            )


def check_model(epoch: int, then: dict[str, Tensor], now: dict[str, Tensor]) -> None:
    """Refuse tensors that are not this model's, both shown."""
    for name in sorted(then.keys() | now.keys()):
        before = _shape(then.get(name))
        here = _shape(now.get(name))
        if before != here:
            raise RunError(
                f"the model has {name} {here}, epoch {epoch}'s checkpoint has {name} {before}: "
                "a resumed run keeps its model"
            )


def _shape(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else f"of shape {tuple(tensor.shape)}"


def _part(checkpoint: Checkpoint, prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in checkpoint.tensors.items()
        if name.startswith(prefix)
    }
