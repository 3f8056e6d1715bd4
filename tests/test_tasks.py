"""Losses, metrics and their options: sums over ranks that are what scikit-learn and torch give."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import awkward
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, roc_auc_score
from sklearn.utils.class_weight import compute_class_weight
from threads import run_threads
from torch import Tensor

from gnndist.comm import Comm, SingleComm
from gnndist.errors import ConfigError
from gnndist.graph import Graph
from gnndist.store import Store, write_store
from gnndist.tasks import Metrics, Objective, mean_rocauc, task
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer, make_model
from gnndist.training.objective import make_objective, total_count

CLASSES, N = 4, 60
RNG = np.random.default_rng(0)
LOGITS = torch.from_numpy(RNG.standard_normal((N, CLASSES)))
SPLIT = torch.from_numpy(RNG.integers(0, 4, N).astype(np.uint8))
SINGLE = torch.from_numpy(RNG.integers(-1, CLASSES, N))
MULTI = torch.from_numpy(RNG.choice([0.0, 1.0, np.nan], (N, CLASSES), p=[0.5, 0.3, 0.2]))
REAL = torch.where(
    MULTI.isnan(), torch.nan, LOGITS + 0.5 * torch.from_numpy(RNG.random((N, CLASSES)))
)
WEIGHT = torch.tensor([1.0, 0.5, 3.0, 0.0], dtype=torch.float64)
LABELS = {"single-label": SINGLE, "multi-label": MULTI, "regression": REAL}


def over_ranks(work: Callable[[Comm, slice], Any]) -> list[Any]:
    """`work` on one rank, and on four of which one has no rows."""
    bounds = [0, 7, 7, 31, N]
    one = work(SingleComm(), slice(0, N))
    four = run_threads(lambda c: work(c, slice(bounds[c.rank], bounds[c.rank + 1])), 4)
    return [one, *four]


def metrics(name: str) -> list[Metrics]:
    def of_rank(comm: Comm, rows: slice) -> Metrics:
        return task(name).metrics(LOGITS[rows], LABELS[name][rows], SPLIT[rows], comm)

    return over_ranks(of_rank)


def loss(name: str, objective: Objective) -> list[float]:
    def of_rank(comm: Comm, rows: slice) -> float:
        kind, labels = task(name), LABELS[name][rows]
        both = torch.stack(
            [
                kind.loss_sum(LOGITS[rows], labels, objective).double(),
                kind.loss_count(labels, objective),
            ]
        )
        comm.all_reduce(both)
        return float(both[0] / both[1])

    return over_ranks(of_rank)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy(weight: Tensor | None, smoothing: float) -> None:
    wanted = F.cross_entropy(
        LOGITS, SINGLE, weight=weight, ignore_index=-1, label_smoothing=smoothing
    )
    found = loss("single-label", Objective(label_smoothing=smoothing, class_weight=weight))
    assert found == pytest.approx([float(wanted)] * 5, rel=1e-12)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_binary_cross_entropy(weight: Tensor | None, smoothing: float) -> None:
    known = ~MULTI.isnan()
    target = MULTI.nan_to_num() * (1 - smoothing) + smoothing / 2
    each = F.binary_cross_entropy_with_logits(LOGITS, target, pos_weight=weight, reduction="none")
    found = loss("multi-label", Objective(label_smoothing=smoothing, class_weight=weight))
    assert found == pytest.approx([float(each[known].mean())] * 5, rel=1e-12)


def test_squared_error() -> None:
    known = ~REAL.isnan()
    wanted = F.mse_loss(LOGITS[known], REAL[known])
    assert loss("regression", Objective()) == pytest.approx([float(wanted)] * 5, rel=1e-12)


@pytest.mark.parametrize("name", LABELS)
def test_unlabelled_rows_have_no_gradient(name: str) -> None:
    logits = LOGITS.clone().requires_grad_()
    task(name).loss_sum(logits, LABELS[name], Objective()).backward()
    missing = LABELS[name] < 0 if name == "single-label" else LABELS[name].isnan()
    assert bool((logits.grad[missing] == 0).all())
    assert bool((logits.grad[~missing] != 0).all())


@pytest.mark.parametrize(("code", "split"), [(1, "train"), (2, "valid"), (3, "test")])
def test_metrics_are_those_of_scikit_learn(code: int, split: str) -> None:
    rows = (code == SPLIT) & (SINGLE >= 0)
    truth, guess = SINGLE[rows], LOGITS[rows].argmax(1)
    for found in metrics("single-label"):
        assert found[f"{split}_accuracy"] == pytest.approx(accuracy_score(truth, guess))
        macro = f1_score(truth, guess, average="macro")
        assert found[f"{split}_macro_f1"] == pytest.approx(macro)
    rows = code == SPLIT
    known = ~MULTI[rows].isnan()
    micro = f1_score(MULTI[rows][known], (LOGITS[rows] > 0)[known])
    areas = [
        roc_auc_score(MULTI[rows][known[:, c], c], LOGITS[rows][known[:, c], c])
        for c in range(CLASSES)
    ]
    for found in metrics("multi-label"):
        assert found[f"{split}_micro_f1"] == pytest.approx(micro)
        assert found[f"{split}_rocauc"] == pytest.approx(np.mean(areas))
    error = mean_absolute_error(REAL[rows][known], LOGITS[rows][known])
    for found in metrics("regression"):
        assert found[f"{split}_mae"] == pytest.approx(error)


def test_rocauc_is_ogbs() -> None:
    ogb = pytest.importorskip("ogb.nodeproppred", reason="ogb is not installed")
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 2, (50, 112)).astype(float)
    truth[:, 7] = 1  # one class only: left out of the mean
    scores = rng.standard_normal((50, 112))
    evaluator = ogb.Evaluator("ogbn-proteins")
    wanted = evaluator.eval({"y_true": truth, "y_pred": scores})["rocauc"]
    assert mean_rocauc(scores, truth) == pytest.approx(wanted)


def test_splits_without_labels_have_no_figure() -> None:
    empty = torch.zeros(N, dtype=torch.uint8)
    for name, labels in LABELS.items():
        found = task(name).metrics(LOGITS, labels, empty, SingleComm())
        assert all(np.isnan(value) for value in found.values())


def objective(text: str, name: str = "single-label", **options: Any) -> Objective:
    config = TrainConfig(class_weights=text, **options)
    return make_objective(config, name, LABELS[name], CLASSES, SingleComm())


def test_balanced_weights() -> None:
    known = SINGLE[SINGLE >= 0].numpy()
    wanted = compute_class_weight("balanced", classes=np.arange(CLASSES), y=known)
    np.testing.assert_allclose(objective("balanced").class_weight, wanted)
    positive, negative = (MULTI == 1).sum(0), (MULTI == 0).sum(0)
    multi = objective("balanced", "multi-label").class_weight
    np.testing.assert_allclose(multi, (negative / positive).numpy(), rtol=1e-6)

    def of_rank(comm: Comm, rows: slice) -> Tensor:
        config = TrainConfig(class_weights="balanced")
        found = make_objective(config, "single-label", SINGLE[rows], CLASSES, comm)
        assert found.class_weight is not None
        return found.class_weight

    for weight in over_ranks(of_rank):
        np.testing.assert_allclose(weight, wanted)


def test_weights_of_classes_without_training_vertices_are_1() -> None:
    config = TrainConfig(class_weights="balanced")
    labels = torch.tensor([0, 0, 2, -1])
    found = make_objective(config, "single-label", labels, 4, SingleComm()).class_weight
    np.testing.assert_allclose(found, [3 / 8, 1, 3 / 4, 1])
    columns = torch.tensor([[1.0, 0.0, torch.nan], [0.0, 0.0, torch.nan], [0.0, 0.0, 1.0]])
    found = make_objective(config, "multi-label", columns, 3, SingleComm()).class_weight
    np.testing.assert_allclose(found, [2, 1, 1])


def test_given_weights() -> None:
    np.testing.assert_allclose(objective("1, 0.5,3,0").class_weight, WEIGHT)
    assert objective("none").class_weight is None
    assert objective("none", label_smoothing=0.1).label_smoothing == 0.1


@pytest.mark.parametrize(
    ("text", "name", "options", "message"),
    [
        ("1,2", "single-label", {}, "class_weights = '1,2': allowed are none, balanced, or 4"),
        ("1,2,3,x", "single-label", {}, "class_weights = '1,2,3,x'"),
        ("1,2,3,-1", "single-label", {}, "numbers from 0"),
        ("1,2,3,nan", "multi-label", {}, "numbers from 0"),
        ("0,0,0,0", "single-label", {}, "not all of them 0"),
        ("balanced", "regression", {}, "class_weights = 'balanced': a regression has no classes"),
        ("none", "regression", {"label_smoothing": 0.1}, "label_smoothing = 0.1: a regression"),
    ],
)
def test_options_that_do_not_fit(
    text: str, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        objective(text, name, **options)


def test_a_loss_of_nothing_is_refused() -> None:
    labels = torch.tensor([3, 3, -1])
    chosen = Objective(class_weight=WEIGHT)
    with pytest.raises(ConfigError, match="no training label has a weight above 0"):
        total_count(task("single-label"), labels, chosen, SingleComm())


def labelled(name: str) -> Graph:
    """The awkward graph with labels of another task, some missing, some only in part."""
    graph = awkward(directed=True)
    if name == "single-label":
        return graph
    rng = np.random.default_rng(3)
    shape = (graph.num_vertices, 3)
    labels = rng.standard_normal(shape) if name == "regression" else rng.integers(0, 2, shape)
    labels = labels.astype(np.float32)
    labels[rng.random(shape) < 0.2] = np.nan
    labels[np.concatenate([*graph.splits.values()]), 0] = np.nan_to_num(
        labels[np.concatenate([*graph.splits.values()]), 0]
    )
    return graph.with_(labels=labels, task=name, num_classes=3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("single-label", {"class_weights": "balanced", "label_smoothing": 0.1}),
        ("multi-label", {"class_weights": "balanced", "label_smoothing": 0.1}),
        ("regression", {}),
    ],
)
def test_training_on_any_number_of_ranks(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    path = tmp_path / "store"
    write_store(labelled(name), path, cells=8)
    config = TrainConfig(dtype="float64", hidden=5, epochs=5, **options)
    state = make_model(Store.open(path), config).double().state_dict()

    def figures(comm: Comm) -> list[dict[str, float]]:
        trainer = Trainer.create(Store.open(path), config, comm, torch.device("cpu"))
        trainer.model.load_state_dict(state)
        lines: list[dict[str, float]] = []
        trainer.run(lines.append)
        names = [k for k in lines[0] if k == "loss" or k.startswith(("train_", "valid_", "test_"))]
        return [{k: line[k] for k in names} for line in lines]

    (one,) = run_threads(figures, 1)
    assert one[-1]["loss"] < one[0]["loss"]
    assert len(one[0]) >= 7
    for ranks in (2, 4):
        for found in run_threads(figures, ranks):
            for line, wanted in zip(found, one, strict=True):
                assert line == pytest.approx(wanted, rel=1e-8)
