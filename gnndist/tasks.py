"""What a model is trained for: losses as sums over labelled vertices, metrics from global counts.

Labels: [n] int64 with −1 for unlabelled (single-label), or [n, C] floats with NaN for unlabelled
(multi-label and regression). A loss is a sum; its denominator is a global count, so that the mean
does not depend on how vertices lie on ranks.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

from gnndist.comm import Comm
from gnndist.errors import ConfigError
from gnndist.graph import SPLITS

Metrics = dict[str, float]


class Objective(NamedTuple):
    """How the loss is formed."""

    label_smoothing: float = 0.0
    """share of the target spread evenly over all classes"""
    class_weight: Tensor | None = None
    """[C] weight of a vertex by its class (single-label) or of a positive entry (multi-label)"""


class Task(Protocol):
    """One kind of labels."""

    metric: str
    """the name of the metric that selects the best epoch"""
    higher_is_better: bool

    def loss_sum(self, logits: Tensor, labels: Tensor, objective: Objective) -> Tensor:
        """The loss summed over labelled entries: a scalar with a gradient."""

    def loss_count(self, labels: Tensor, objective: Objective) -> Tensor:
        """What the global loss sum is divided by: this rank's part of it, a float64 scalar."""

    def metrics(self, logits: Tensor, labels: Tensor, split: Tensor, comm: Comm) -> Metrics:
        """Global metrics of every split, ``{split}_{name}``. `split` is [n]: 0 none, 1, 2, 3."""


class SingleLabel:
    """One class a vertex: cross-entropy; accuracy and macro-F1."""

    metric = "accuracy"
    higher_is_better = True

    def loss_sum(self, logits: Tensor, labels: Tensor, objective: Objective) -> Tensor:
        weight = objective.class_weight
        return F.cross_entropy(
            logits,
            labels,
            weight=None if weight is None else weight.to(logits),
            reduction="sum",
            ignore_index=-1,
            label_smoothing=objective.label_smoothing,
        )

    def loss_count(self, labels: Tensor, objective: Objective) -> Tensor:
        known = labels[labels >= 0]
        if objective.class_weight is None:
            return torch.tensor(float(len(known)), dtype=torch.float64, device=labels.device)
        return objective.class_weight.to(labels.device, torch.float64)[known].sum()

    def metrics(self, logits: Tensor, labels: Tensor, split: Tensor, comm: Comm) -> Metrics:
        classes = logits.shape[1]
        known = (labels >= 0) & (split > 0)
        cell = (split[known].long() - 1) * classes**2
        cell += labels[known] * classes + logits[known].argmax(dim=1)
        confusion = torch.bincount(cell, minlength=len(SPLITS) * classes**2)
        comm.all_reduce(confusion)
        found: Metrics = {}
        for name, table in zip(SPLITS, confusion.view(-1, classes, classes).double(), strict=True):
            right = table.diagonal()
            found[f"{name}_accuracy"] = _ratio(right.sum(), table.sum())
            seen = table.sum(0) + table.sum(1)
            f1 = 2 * right[seen > 0] / seen[seen > 0]
            found[f"{name}_macro_f1"] = float(f1.mean()) if len(f1) else float("nan")
        return found


class MultiLabel:
    """Any number of C labels a vertex: binary cross-entropy; mean ROC-AUC and micro-F1."""

    metric = "rocauc"
    higher_is_better = True

    def loss_sum(self, logits: Tensor, labels: Tensor, objective: Objective) -> Tensor:
        known = ~labels.isnan()
        target = labels.nan_to_num().to(logits)
        smooth = objective.label_smoothing
        weight = objective.class_weight
        loss = F.binary_cross_entropy_with_logits(
            logits,
            target * (1 - smooth) + smooth / 2,
            pos_weight=None if weight is None else weight.to(logits),
            reduction="none",
        )
        return loss.masked_fill(~known, 0.0).sum()

    def loss_count(self, labels: Tensor, objective: Objective) -> Tensor:
        return (~labels.isnan()).sum().double()

    def metrics(self, logits: Tensor, labels: Tensor, split: Tensor, comm: Comm) -> Metrics:
        known = ~labels.isnan()
        truth, guess = labels == 1, logits > 0
        counts = logits.new_zeros(len(SPLITS), 2, dtype=torch.float64)
        for code in range(len(SPLITS)):
            rows = (split == code + 1)[:, None] & known
            counts[code, 0] = (truth & guess & rows).sum()
            counts[code, 1] = (truth & rows).sum() + (guess & rows).sum()
        comm.all_reduce(counts)
        found = {
            f"{name}_micro_f1": _ratio(2 * both, total)
            for name, (both, total) in zip(SPLITS, counts, strict=True)
        }
        return found | {
            f"{name}_rocauc": value
            for name, value in _rocauc_by_split(logits, labels, split, comm).items()
        }


class Regression:
    """Real targets: mean squared error; mean absolute error."""

    metric = "mae"
    higher_is_better = False

    def loss_sum(self, logits: Tensor, labels: Tensor, objective: Objective) -> Tensor:
        known = ~labels.isnan()
        error = logits - labels.nan_to_num().to(logits)
        return error.square().masked_fill(~known, 0.0).sum()

    def loss_count(self, labels: Tensor, objective: Objective) -> Tensor:
        return (~labels.isnan()).sum().double()

    def metrics(self, logits: Tensor, labels: Tensor, split: Tensor, comm: Comm) -> Metrics:
        known = ~labels.isnan()
        error = logits.double() - labels.nan_to_num()
        sums = logits.new_zeros(len(SPLITS), 3, dtype=torch.float64)
        for code in range(len(SPLITS)):
            of_split = error[(split == code + 1)[:, None] & known]
            sums[code] = torch.stack(
                [of_split.abs().sum(), of_split.square().sum(), error.new_tensor(len(of_split))]
            )
        comm.all_reduce(sums)
        found: Metrics = {}
        for name, (absolute, square, count) in zip(SPLITS, sums, strict=True):
            found[f"{name}_mae"] = _ratio(absolute, count)
            found[f"{name}_mse"] = _ratio(square, count)
        return found


def mean_rocauc(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """ROC-AUC averaged over the columns that have both classes, as OGB does for proteins."""
    values = []
    for column, target in zip(scores.T, labels.T, strict=True):
        known = ~np.isnan(target)
        if len(np.unique(target[known])) == 2:
            values.append(roc_auc_score(target[known], column[known]))
    return float(np.mean(values)) if values else float("nan")


def _rocauc_by_split(logits: Tensor, labels: Tensor, split: Tensor, comm: Comm) -> Metrics:
    """A rank statistic needs all scores at once: they go to rank 0, the figures come back."""
    rows = split > 0
    mine = (logits[rows].cpu().numpy(), labels[rows].cpu().numpy(), split[rows].cpu().numpy())
    parts = comm.swap([mine if rank == 0 else None for rank in range(comm.world)])
    found: Metrics | None = None
    if comm.rank == 0:
        scores, truth, code = (np.concatenate(column) for column in zip(*parts, strict=True))
        found = {
            name: mean_rocauc(scores[code == k + 1], truth[code == k + 1])
            for k, name in enumerate(SPLITS)
        }
    everywhere: Metrics = comm.all_gather(found)[0]
    return everywhere


def _ratio(part: Tensor, whole: Tensor) -> float:
    return float(part / whole) if whole else float("nan")


TASKS: Mapping[str, Task] = {
    "single-label": SingleLabel(),
    "multi-label": MultiLabel(),
    "regression": Regression(),
}


def task(name: str) -> Task:
    """The task of that name.

    Raises
    ------
    ConfigError
        if there is none.
    """
    if name not in TASKS:
        raise ConfigError(f"task {name!r}: allowed are {', '.join(TASKS)}")
    return TASKS[name]
