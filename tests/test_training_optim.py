"""Optimisers, learning rates, clipping, early stopping: against torch's own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import awkward
from threads import run_threads

from gnndist import TrainConfig
from gnndist.comm import Comm
from gnndist.store import Store, write_store
from gnndist.training.loop import Best, Trainer
from gnndist.training.optim import Schedule, clip_gradients, make_optimizer

CONFIG = TrainConfig(lr=0.1, epochs=20)


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))


def rates(config: TrainConfig) -> list[float]:
    """The learning rate of every epoch."""
    optimizer = make_optimizer(model(), config)
    schedule = Schedule(optimizer, config, higher_is_better=True)
    found = []
    for epoch in range(1, config.epochs + 1):
        schedule.start_epoch(epoch)
        found.append(schedule.lr)
    return found


def torch_rates(scheduler: Any, epochs: int) -> list[float]:
    found = []
    for _ in range(epochs):
        found.append(scheduler.optimizer.param_groups[0]["lr"])
        scheduler.optimizer.step()
        scheduler.step()
    return found


def test_constant() -> None:
    assert rates(CONFIG) == [0.1] * 20


def test_cosine_is_torchs() -> None:
    config = replace(CONFIG, schedule="cosine", min_lr=0.02)
    optimizer = torch.optim.Adam(model().parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20, eta_min=0.02)
    assert rates(config) == pytest.approx(torch_rates(scheduler, 20))


def test_step_is_torchs() -> None:
    config = replace(CONFIG, schedule="step", step_every=6, decay=0.3)
    optimizer = torch.optim.Adam(model().parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 6, gamma=0.3)
    assert rates(config) == pytest.approx(torch_rates(scheduler, 20))


@pytest.mark.parametrize("schedule", ["constant", "cosine", "step", "plateau"])
def test_warm_up_rises_to_the_rate_and_then_the_schedule_begins(schedule: str) -> None:
    found = rates(replace(CONFIG, schedule=schedule, warmup=4))
    assert found[:5] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1])
    without = rates(replace(CONFIG, schedule=schedule, epochs=16))
    assert found[4:] == pytest.approx(without)


@pytest.mark.parametrize("higher", [True, False])
def test_plateau_decays_when_validation_does_not_improve(higher: bool) -> None:
    config = replace(CONFIG, schedule="plateau", plateau=2, decay=0.5, min_lr=0.03, warmup=1)
    optimizer = make_optimizer(model(), config)
    schedule = Schedule(optimizer, config, higher_is_better=higher)
    sign = 1 if higher else -1
    figures = [0.1, 0.5, 0.6, 0.6, 0.6, 0.6, 0.7, 0.7, 0.7, 0.7, 0.7]
    found = []
    for epoch, figure in enumerate(figures, start=1):
        schedule.start_epoch(epoch)
        found.append(schedule.lr)
        schedule.evaluated(epoch, sign * figure)
    assert found == pytest.approx(
        [0.05, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.03], abs=1e-12
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)],
)
def test_optimizers_are_torchs(name: str, kind: type[torch.optim.Optimizer]) -> None:
    config = replace(CONFIG, optimizer=name, weight_decay=0.01, momentum=0.8)
    one, other = model(), model()
    options = {"lr": 0.1, "weight_decay": 0.01} | ({"momentum": 0.8} if name == "sgd" else {})
    mine, theirs = make_optimizer(one, config), kind(other.parameters(), **options)
    assert type(mine) is kind
    x = torch.ones(5, 3)
    for _ in range(3):
        for net, optimizer in ((one, mine), (other, theirs)):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_clipping_bounds_the_norm_of_all_gradients_together() -> None:
    net = model()
    parameters = list(net.parameters())
    net(torch.ones(5, 3)).square().sum().backward()
    before = torch.cat([p.grad.flatten() for p in parameters])
    assert clip_gradients(parameters, 0.0) == pytest.approx(float(before.norm()), rel=1e-6)
    assert torch.equal(torch.cat([p.grad.flatten() for p in parameters]), before)
    clip_gradients(parameters, 0.5)
    after = torch.cat([p.grad.flatten() for p in parameters])
    torch.testing.assert_close(after, before * 0.5 / before.norm(), rtol=1e-5, atol=0)
    assert clip_gradients(parameters, 10.0) == pytest.approx(0.5, rel=1e-5)
    parameters[0].grad[0, 0] = float("nan")
    assert clip_gradients(parameters, 0.5) != clip_gradients(parameters, 0.5)  # nan


# --- the loop -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(awkward(), tmp_path_factory.mktemp("optim") / "store", cells=8)


def train(comm: Comm, store: Path, config: TrainConfig) -> tuple[list[dict[str, Any]], Best]:
    trainer = Trainer.create(Store.open(store), config, comm, torch.device("cpu"))
    lines: list[dict[str, Any]] = []
    return lines, trainer.run(lines.append)


def test_early_stopping_counts_from_the_best_epoch(store: Store) -> None:
    config = TrainConfig(hidden=4, epochs=400, patience=7, threads=1)
    ((lines, best),) = run_threads(train, 1, store.path, config)
    figures = [line["valid_accuracy"] for line in lines]
    first_best = 1 + figures.index(max(figures))
    assert best.epoch == first_best
    assert len(lines) == first_best + 7
    assert best.metrics == {k: lines[first_best - 1][k] for k in best.metrics}


def test_evaluations_come_every_so_many_epochs_and_at_the_end(store: Store) -> None:
    config = TrainConfig(hidden=4, epochs=8, eval_every=3, threads=1)
    ((lines, _),) = run_threads(train, 1, store.path, config)
    assert [line["epoch"] for line in lines if "valid_accuracy" in line] == [3, 6, 8]
