"""The loss of a run: class weights and label smoothing, checked against the task."""

import math

import torch
from torch import Tensor

from gnndist.comm import Comm
from gnndist.errors import ConfigError
from gnndist.tasks import Objective, Task
from gnndist.training.config import TrainConfig


def make_objective(
    config: TrainConfig, task: str, labels: Tensor, num_classes: int, comm: Comm
) -> Objective:
    """How the loss is formed, equal on every rank.

    Parameters
    ----------
    labels:
        this rank's training labels, [n] or [n, C], −1 or NaN where they do not train.

    Raises
    ------
    ConfigError
        an option that the task does not have, weights that are not numbers or not as many as
        classes.
    """
    if task == "regression":
        for name, value, default in (
            ("class_weights", config.class_weights, "none"),
            ("label_smoothing", config.label_smoothing, 0.0),
        ):
            if value != default:
                raise ConfigError(f"{name} = {value!r}: a regression has no classes")
    weight = None
    if config.class_weights == "balanced":
        weight = balanced_weights(labels, num_classes, comm)
    elif config.class_weights != "none":
        weight = given_weights(config.class_weights, num_classes)
    return Objective(label_smoothing=config.label_smoothing, class_weight=weight)


def total_count(task: Task, labels: Tensor, objective: Objective, comm: Comm) -> float:
    """What the loss is divided by, over all ranks.

    Raises
    ------
    ConfigError
        if that is 0: no training label, or only ones of weight 0.
    """
    count = task.loss_count(labels, objective)
    comm.all_reduce(count)
    if not count > 0:
        raise ConfigError("no training label has a weight above 0: the loss needs at least one")
    return float(count)


def given_weights(text: str, num_classes: int) -> Tensor:
    """[C] float64 from numbers separated by commas."""
    allowed = (
        f"class_weights = {text!r}: allowed are none, balanced, or {num_classes} numbers from 0 "
        "separated by commas, not all of them 0"
    )
    try:
        weights = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(allowed) from None
    sound = all(math.isfinite(w) and w >= 0 for w in weights) and any(weights)
    if len(weights) != num_classes or not sound:
        raise ConfigError(allowed)
    return torch.tensor(weights, dtype=torch.float64)


def balanced_weights(labels: Tensor, num_classes: int, comm: Comm) -> Tensor:
    """[C] float64 that give every class the same say, from counts over all ranks.

    Single-label: n / (C · n_c), scikit-learn's "balanced". Multi-label: negatives ÷ positives of
    each column, for its positive entries. A class without training vertices has weight 1.
    """
    if labels.dim() == 1:
        counts = torch.bincount(labels[labels >= 0], minlength=num_classes)
        comm.all_reduce(counts)
        weights = counts.sum() / (num_classes * counts.double())
    else:
        both = torch.stack([(labels == 0).sum(0), (labels == 1).sum(0)])
        comm.all_reduce(both)
        negative, positive = both.double()
        weights = torch.where(negative > 0, negative, torch.inf) / positive
    return torch.where(weights.isfinite(), weights, 1.0)
