"""What --explain says is what training sends, with and without each saving."""

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from graphs import awkward
from threads import run_threads
from torch.utils._python_dispatch import TorchDispatchMode

from gnndist.cli import cli
from gnndist.comm import Comm
from gnndist.inspection.explain import explain
from gnndist.store import Store, write_store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer

CONFIG = TrainConfig(layers=3, hidden=24)
RANKS = 3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(awkward(vertices=120), tmp_path_factory.mktemp("explain") / "store", cells=8)


def sent(comm: Comm, path: Path, config: TrainConfig) -> int:
    trainer = Trainer.create(Store.open(path), config, comm, torch.device("cpu"))
    trainer.step(1)
    comm.meter.take()
    trainer.step(2)
    return comm.meter.bytes_sent


def test_bytes_are_those_of_training(store: Store) -> None:
    found = explain(store, CONFIG, RANKS)
    assert found.cost.sent == sum(run_threads(sent, RANKS, store.path, CONFIG))
    assert set(found.without) == {"linear_first", "propagate_once", "cover", "active_sets"}
    for name, cost in found.without.items():
        config = TrainConfig(**(CONFIG.to_dict() | {name: False}))
        assert cost.sent == sum(run_threads(sent, RANKS, store.path, config)), name
        assert cost.sent >= found.cost.sent
    assert found.plain.sent > found.cost.sent


class Products(TorchDispatchMode):
    """Counts operations of dense products; torch's own counter misses those in place."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert "bmm" not in name
        if name in ("mm", "addmm", "addmm_"):
            a, b = args[-2:]
            self.flops += 2 * a.shape[0] * a.shape[1] * b.shape[1]
        return func(*args, **(kwargs or {}))


def flops(comm: Comm, path: Path, config: TrainConfig) -> float:
    """Of a step's dense products."""
    trainer = Trainer.create(Store.open(path), config, comm, torch.device("cpu"))
    trainer.step(1)
    with Products() as products:
        trainer.step(2)
    return products.flops


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_operations_are_those_of_training(store: Store, model: str) -> None:
    config = TrainConfig(**(CONFIG.to_dict() | {"model": model}))
    for ranks in (1, 3):
        found = explain(store, config, ranks)
        measured = sum(run_threads(flops, ranks, store.path, config))
        assert found.cost.dense == pytest.approx(measured, rel=0.01)
        for name, cost in found.without.items():
            changed = TrainConfig(**(config.to_dict() | {name: False}))
            measured = sum(run_threads(flops, ranks, store.path, changed))
            assert cost.dense == pytest.approx(measured, rel=0.01), (ranks, name)


def test_layers_say_what_they_exchange(store: Store) -> None:
    first, second, third = explain(store, CONFIG, RANKS).choices
    assert (first.forward, first.backward) == ((), ())  # the features are aggregated once
    assert second.forward == second.backward == (24,)
    assert third.forward == third.backward == (4,)  # linear first: at the width of the classes
    assert first.rows >= second.rows >= third.rows == store.manifest.split_sizes["train"]


def test_train_explains_without_training(store: Store) -> None:
    result = CliRunner().invoke(cli, ["train", str(store.path), "--ranks", "2", "--explain"])
    assert result.exit_code == 0, result.output
    assert "without linear-first" in result.output
    assert "without any" in result.output
