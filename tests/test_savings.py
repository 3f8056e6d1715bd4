"""The exact savings: any combination gives the same numbers, and each saves what it says."""

import itertools
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import awkward
from threads import run_threads

from gnndist.comm import Comm
from gnndist.savings import Savings
from gnndist.store import Store, write_store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer

NAMES = [item.name for item in fields(Savings)]
RANKS = 3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("savings") / "store"
    write_store(awkward(directed=True, weighted=True), path, cells=8)
    return path


def two_epochs(comm: Comm, store: Path, **changes: Any) -> dict[str, Any]:
    """Losses, gradients and the bytes of the second epoch."""
    options = {"layers": 3, "hidden": 7, "dropout": 0.4, "dtype": "float64", "seed": 5}
    config = TrainConfig(**{**options, **changes})
    trainer = Trainer.create(Store.open(store), config, comm, torch.device("cpu"))
    # Threads share torch's generator, so the initial weights must not come from it.
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in trainer.model.parameters():
            p.copy_(torch.randn(p.shape, dtype=p.dtype, generator=generator))
    first = trainer.step(1)
    comm.meter.take()
    second = trainer.step(2)
    return {
        "losses": [first, second],
        "gradients": [p.grad.numpy().copy() for p in trainer.model.parameters()],
        "bytes": comm.meter.bytes_sent,
    }


@pytest.mark.parametrize("input_dropout", [0.0, 0.3])
def test_any_combination_gives_the_same_numbers(store: Path, input_dropout: float) -> None:
    def run(off: tuple[str, ...]) -> list[dict[str, Any]]:
        return run_threads(
            lambda comm: two_epochs(
                comm, store, input_dropout=input_dropout, **dict.fromkeys(off, False)
            ),
            RANKS,
        )

    wanted = run(())
    for count in range(1, len(NAMES) + 1):
        for off in itertools.combinations(NAMES, count):
            for mine, all_on in zip(run(off), wanted, strict=True):
                np.testing.assert_allclose(mine["losses"], all_on["losses"], rtol=1e-12)
                for a, b in zip(mine["gradients"], all_on["gradients"], strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "overlap"])
def test_each_saves_bytes(store: Path, name: str) -> None:
    # A narrow output, so that the order of a layer's two products matters.
    def sent(**changes: Any) -> int:
        results = run_threads(lambda comm: two_epochs(comm, store, hidden=16, **changes), RANKS)
        return sum(r["bytes"] for r in results)

    assert sent() < sent(**{name: False})


def test_aggregate_first_with_plain_rows_sends_what_the_arithmetic_says(store: Path) -> None:
    """All off: halo × (features + 2 × hidden widths) forward, hidden widths backward."""
    off = dict.fromkeys(NAMES, False)

    def run(comm: Comm) -> tuple[int, int, int]:
        sent = two_epochs(comm, store, **off)["bytes"]
        trainer = Trainer.create(Store.open(store), TrainConfig(**off), comm, torch.device("cpu"))
        plan = trainer.shard.graph.plan(cover=False)
        return sent, int(plan.send_counts.sum()), int(plan.receive_counts.sum())

    results = run_threads(run, RANKS)
    features, hidden = 5, 7
    for sent, rows, returned in results:
        assert sent == 8 * (rows * (features + 2 * hidden) + returned * 2 * hidden)
