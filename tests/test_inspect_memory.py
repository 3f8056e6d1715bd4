"""Predicted memory of a rank against what real ranks hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import awkward
from threads import run_threads

from gnndist.comm import Comm
from gnndist.inspection.held import held_arrays
from gnndist.inspection.memory import memory_of
from gnndist.inspection.network import Network
from gnndist.inspection.operations import total
from gnndist.inspection.probe import trace_step
from gnndist.inspection.sizes import cut, step_masks
from gnndist.store import Store, write_store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("memory")
    return write_store(awkward(vertices=6000), folder / "store", cells=16)


def held(comm: Comm, path: Path, config: TrainConfig) -> tuple[int, int]:
    """Bytes that a rank's graph and its pool of buffers hold after training and evaluating."""
    trainer = Trainer.create(Store.open(path), config, comm, torch.device("cpu"))
    trainer.step(1)
    trainer.evaluate()
    trainer.step(2)
    graphs = (trainer.shard.graph, trainer.graph)
    arrays = [array for array in held_arrays(*graphs) if array.address != _features(trainer)]
    return sum(array.nbytes for array in arrays), trainer.graph.buffers.nbytes


def _features(trainer: Trainer) -> int:
    return trainer.shard.features.data_ptr()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"layers": 3, "hidden": 64}, id="gcn"),
        pytest.param({"layers": 2, "hidden": 64, "norm": "batch"}, id="every vertex"),
        pytest.param({"model": "sage", "hidden": 64, "dropout": 0.0}, id="sage"),
    ],
)
def test_buffers_are_those_of_the_real_pool(store: Store, options: dict[str, Any]) -> None:
    config = TrainConfig(**options)
    trace = trace_step(store.manifest, config)
    masks = step_masks(store, trace)
    for ranks in (1, 2):
        sizes = cut(store, ranks, trace, masks).sizes
        predicted = memory_of(trace, sizes, process=0).buffers
        measured = [pool for _, pool in run_threads(held, ranks, store.path, config)]
        # Small buffers are no business of the real pool's.
        assert predicted.tolist() == pytest.approx(measured, rel=0.15)


def test_the_graph_takes_what_its_arrays_take(store: Store) -> None:
    config = TrainConfig(layers=3, hidden=16)
    trace = trace_step(store.manifest, config)
    sizes = cut(store, 3, trace, step_masks(store, trace)).sizes
    predicted = total(trace.graph_memory, sizes)
    for rank, (arrays, _) in enumerate(run_threads(held, 3, store.path, config)):
        # Constant inputs and edges' values, which torch's operations made, count as tensors.
        inputs = 4 * store.manifest.num_features * float(sizes.whole.rows[rank])
        assert predicted[rank] > 0.4 * arrays - 2 * inputs
        assert predicted[rank] < 1.1 * arrays


def test_features_and_weights_are_counted(store: Store) -> None:
    narrow, wide = (
        memory_of(
            trace_step(store.manifest, TrainConfig(layers=2, hidden=hidden)),
            cut(store, 2, trace_step(store.manifest, TrainConfig(layers=2))).sizes,
            process=7,
        )
        for hidden in (16, 512)
    )
    features = 4 * store.manifest.num_features * store.num_vertices / 2
    assert (narrow.tensors > 0.9 * features).all()
    # Four copies of the weights: themselves, their gradients and Adam's two moments.
    more = 4 * 4 * (512 - 16) * (store.manifest.num_features + store.manifest.num_classes)
    assert (wide.tensors - narrow.tensors > 0.75 * more).all()
    assert (narrow.rank - narrow.tensors - narrow.buffers - narrow.graph == 7).all()
    together = wide.host(Network(ranks_per_host=2))
    assert together.tolist() == [wide.rank.sum()]
    assert wide.host(Network(ranks_per_host=1)).tolist() == wide.rank.tolist()


def test_held_arrays_are_counted_once() -> None:
    class Holder:
        pass

    Holder.__module__ = "gnndist.somewhere"
    array = np.zeros((10, 3))
    holder: Any = Holder()
    holder.a, holder.b, holder.self = array, {"k": [array, array[2:]]}, holder
    holder.tensor = torch.zeros(5, dtype=torch.float64)
    found = sorted((h.length, h.nbytes) for h in held_arrays(holder))
    assert found == [(5, 40), (10, 240)]
