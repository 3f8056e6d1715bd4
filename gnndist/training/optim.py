"""Optimisers and learning rates."""

import math
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from gnndist.training.config import TrainConfig


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser of a run, with weight decay on all layers or on the first only."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if config.decay_on == "all":
        groups: list[dict[str, Any]] = [{"params": parameters, "weight_decay": config.weight_decay}]
    else:
        convs = getattr(model, "convs", None)
        first = set(convs[0].parameters()) if convs is not None else {parameters[0]}
        groups = [
            {
                "params": [p for p in parameters if p in first],
                "weight_decay": config.weight_decay,
            },
            {"params": [p for p in parameters if p not in first], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=config.lr)


class Schedule:
    """The learning rate of every epoch.

    Constant, cosine and step, and the warm-up before any of them, are functions of the epoch
    alone, so that a resumed run needs no state for them. Plateau (torch's) has a state.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, config: TrainConfig, *, higher_is_better: bool
    ) -> None:
        self._optimizer = optimizer
        self._config = config
        self._plateau: ReduceLROnPlateau | None = None
        if config.schedule == "plateau":
            self._plateau = ReduceLROnPlateau(
                optimizer,
                mode="max" if higher_is_better else "min",
                factor=config.decay,
                patience=config.plateau,
                threshold=0.0,
                min_lr=config.min_lr,
            )

    @property
    def lr(self) -> float:
        return float(self._optimizer.param_groups[0]["lr"])

    def start_epoch(self, epoch: int) -> None:
        """Set the learning rate of an epoch (from 1)."""
        if self._plateau is not None and epoch > self._config.warmup + 1:
            return
        for group in self._optimizer.param_groups:
            group["lr"] = self._config.lr * self._factor(epoch)

    def evaluated(self, epoch: int, figure: float) -> None:
        """Take note of the validation metric of an epoch."""
        if self._plateau is not None and epoch > self._config.warmup:
            self._plateau.step(figure)

    def _factor(self, epoch: int) -> float:
        config = self._config
        if epoch <= config.warmup:
            return epoch / (config.warmup + 1)
        done = epoch - 1 - config.warmup
        if config.schedule == "cosine":
            least = min(1.0, config.min_lr / config.lr)
            share = done / max(1, config.epochs - config.warmup)
            return least + (1 - least) * (1 + math.cos(math.pi * share)) / 2
        if config.schedule == "step":
            return float(config.decay ** (done // config.step_every))
        return 1.0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: numbers and strings."""
        plateau = None if self._plateau is None else self._plateau.state_dict()
        return {"lr": self.lr, "plateau": plateau}

    def load_state(self, state: dict[str, Any]) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = state["lr"]
        if self._plateau is not None:
            self._plateau.load_state_dict(state["plateau"])


def clip_gradients(parameters: list[nn.Parameter], most: float) -> float:
    """Scale all gradients so that their norm together is at most `most` (0: leave them).

    Returns the norm before; it is not finite if any gradient is not.
    """
    if most > 0:
        return float(torch.nn.utils.clip_grad_norm_(parameters, most))
    gradients = [p.grad for p in parameters if p.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients))
