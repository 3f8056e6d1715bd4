"""What inspect says a training epoch sends is what training sends, pair by pair."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import awkward
from processes import run_ranks
from threads import run_threads

from gnndist.comm import Comm
from gnndist.graph import Graph
from gnndist.inspection.probe import trace_step
from gnndist.inspection.sizes import cut, step_masks
from gnndist.nn.models import MODELS
from gnndist.store import Store, write_store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("traffic")
    return write_store(awkward(vertices=150, weighted=True), folder / "store", cells=8)


@pytest.fixture(scope="module")
def path_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A path with a few shortcuts, few training vertices: every layer needs other vertices."""
    rng = np.random.default_rng(5)
    place = np.arange(299)
    shortcuts = np.stack([place[:280:5], place[:280:5] + rng.integers(2, 20, 56)])
    edges = np.concatenate([np.stack([place, place + 1]), shortcuts], axis=1)
    graph = Graph.from_edge_index(
        edges,
        num_vertices=300,
        features=rng.standard_normal((300, 6)).astype(np.float32),
        labels=rng.integers(0, 3, 300),
        num_classes=3,
        splits={"train": np.arange(20, 300, 50)},
    )
    folder = tmp_path_factory.mktemp("path")
    return write_store(graph, folder / "store", method="random", cells=6)


def sent(comm: Comm, path: Path, config: TrainConfig) -> tuple[list[int], list[int]]:
    """Bytes that this rank sends to each rank, in the first epoch and in the second."""
    trainer = Trainer.create(Store.open(path), config, comm, torch.device("cpu"))
    readings = []
    for epoch in (1, 2):
        comm.meter.take()
        trainer.step(epoch)
        by_peer = comm.meter.take().bytes_to
        readings.append([by_peer.get(peer, 0) for peer in range(comm.world)])
    return readings[0], readings[1]


def check(store: Store, config: TrainConfig, rank_counts: tuple[int, ...], run: Any) -> None:
    trace = trace_step(store.manifest, config)
    masks = step_masks(store, trace)
    for ranks in rank_counts:
        sizes = cut(store, ranks, trace, masks).sizes
        results = run(sent, ranks, store.path, config)
        steady = np.array([second for _, second in results])
        assert steady.sum() > 0 or config.layers == 1 or config.model == "sgc"
        assert trace.bytes_sent(sizes).tolist() == steady.tolist()
        once = trace.bytes_sent_once(sizes)
        assert (steady + once).tolist() == [first for first, _ in results]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"layers": 3, "hidden": 7}, id="three layers"),
        pytest.param({"layers": 3, "hidden": 3, "dropout": 0.0}, id="narrow, no dropout"),
        pytest.param({"layers": 2, "hidden": 7, "input_dropout": 0.5}, id="dropout on the input"),
        pytest.param({"layers": 1, "dtype": "float64"}, id="one layer, float64"),
    ],
)
def test_gcn(store: Store, options: dict[str, Any]) -> None:
    check(store, TrainConfig(model="gcn", **options), (2, 3, 4), run_threads)


def test_gcn_over_gloo(store: Store) -> None:
    check(store, TrainConfig(model="gcn", layers=3, hidden=7), (3,), run_ranks)


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize(
    "options",
    [{"dropout": 0.0}, {"dropout": 0.4}, {"norm": "batch", "layers": 3}],
    ids=str,
)
def test_every_model(path_store: Store, model: str, options: dict[str, Any]) -> None:
    taken = inspect.signature(MODELS[model]).parameters
    options = {k: v for k, v in ({"hidden": 8} | options).items() if k in taken}
    check(path_store, TrainConfig(model=model, **options), (4,), run_threads)


@pytest.mark.parametrize(
    "off", ["linear_first", "propagate_once", "active_sets", "overlap", "cover"]
)
def test_every_saving_off(path_store: Store, off: str) -> None:
    config = TrainConfig(model="gcn", layers=3, hidden=7, **{off: False})
    check(path_store, config, (3,), run_threads)


def test_a_module_of_ones_own(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module.py").write_text(
        "import torch\n"
        "from gnndist.nn import GCNConv\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self, in_channels, out_channels, hidden=9):\n"
        "        super().__init__()\n"
        "        self.a = GCNConv(in_channels, hidden)\n"
        "        self.b = GCNConv(hidden, out_channels)\n"
        "    def forward(self, graph, x):\n"
        "        return self.b(graph, self.a(graph, x).tanh())\n"
    )
    monkeypatch.chdir(tmp_path)
    check(store, TrainConfig(model="own_module:Net"), (2, 4), run_threads)
