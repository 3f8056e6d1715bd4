"""The exactness contract: P ranks give what a dense float64 reference gives.

Logits, loss and every gradient, with dropout on, element by element in original ids. The reference
(`dense.py`) knows nothing of stores, plans or ranks; the ranks run on stores written to disk.
"""

from pathlib import Path
from typing import Any

import dense
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import awkward, two_islands
from processes import run_ranks
from threads import run_threads
from torch import Tensor

from gnndist.comm import Comm
from gnndist.graph import Graph
from gnndist.store import Store, write_store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer

CONFIG = TrainConfig(
    layers=3, hidden=6, dropout=0.5, input_dropout=0.3, dtype="float64", seed=11, epochs=10
)
TOLERANCE = {"float64": 1e-10, "float32": 2e-5}
EPOCH = 3


def one_step(comm: Comm, store: Path, config: TrainConfig, runs: Any = None) -> dict[str, Any]:
    """What a rank computes in one training step, and its predictions before it."""
    trainer = Trainer.create(Store.open(store), config, comm, torch.device("cpu"), runs=runs)
    shard = trainer.shard
    predictions = trainer.logits().numpy().copy()
    state = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    loss = trainer.step(EPOCH)
    return {
        "ids": shard.original_ids,
        "global": shard.graph.columns,
        "predictions": predictions,
        "state": state,
        "loss": loss,
        "gradients": {k: p.grad.clone() for k, p in trainer.model.named_parameters()},
    }


def reference(
    graph: Graph, config: TrainConfig, state: dict[str, Tensor], global_id: np.ndarray
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Predictions, training loss and gradients of the GCN, all dense."""
    norm = dense.gcn_norm(dense.adjacency(graph))
    state = {k: v.double().requires_grad_() for k, v in state.items()}

    def forward(training: bool) -> Tensor:
        h = torch.from_numpy(np.asarray(graph.features)).double()
        layer = 0
        for k in range(config.layers):
            h = h.relu() if k else h
            p = config.dropout if k else config.input_dropout
            if training and p > 0:
                h = h * dense.masks(config.seed, EPOCH, layer, p, global_id, h.shape[1])
                layer += 1
            h = norm @ (h @ state[f"convs.{k}.lin.weight"].T) + state[f"convs.{k}.bias"]
        return h

    train = torch.from_numpy(graph.splits["train"])
    loss = F.cross_entropy(forward(True)[train], torch.from_numpy(graph.labels)[train])
    gradients = torch.autograd.grad(loss, list(state.values()))
    with torch.no_grad():
        predictions = forward(False)
    return predictions, loss.detach(), dict(zip(state, gradients, strict=True))


def check(graph: Graph, results: list[dict[str, Any]], config: TrainConfig) -> None:
    """Every rank's results against the reference."""
    tolerance = TOLERANCE[config.dtype]
    ids = np.concatenate([r["ids"] for r in results])
    assert np.array_equal(np.sort(ids), np.arange(graph.num_vertices))
    global_id = np.empty(len(ids), np.int64)
    global_id[ids] = np.concatenate([r["global"] for r in results])
    predictions, loss, gradients = reference(graph, config, results[0]["state"], global_id)
    found = np.concatenate([r["predictions"] for r in results])
    wanted = predictions.numpy()[ids]
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    for result in results:
        assert result["loss"] == pytest.approx(float(loss), abs=tolerance, rel=tolerance)
        assert result["gradients"].keys() == gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(
                result["gradients"][name].double(), gradient, rtol=tolerance, atol=tolerance
            )


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("directed", [False, True], ids=["symmetric", "directed"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_equals_the_dense_reference(
    tmp_path: Path, ranks: int, directed: bool, weighted: bool
) -> None:
    graph = awkward(directed=directed, weighted=weighted)
    write_store(graph, tmp_path / "store", cells=8)
    results = run_threads(one_step, ranks, tmp_path / "store", CONFIG)
    check(graph, results, CONFIG)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_float32_to_rounding(tmp_path: Path, ranks: int) -> None:
    graph = awkward()
    config = TrainConfig(**{**CONFIG.to_dict(), "dtype": "float32"})
    write_store(graph, tmp_path / "store", cells=8)
    check(graph, run_threads(one_step, ranks, tmp_path / "store", config), config)


@pytest.mark.parametrize("directed", [False, True], ids=["symmetric", "directed"])
@pytest.mark.parametrize(
    "runs",
    [
        pytest.param([0, 12, 24], id="no halo, and one rank without labels"),
        pytest.param([0, 5, 5, 24], id="a rank that owns nothing"),
        pytest.param([0, 0, 10, 11, 24, 24], id="empty ends and a rank of one vertex"),
        pytest.param([0, 8, 24], id="training labels on one rank only"),
    ],
)
def test_awkward_runs(tmp_path: Path, runs: list[int], directed: bool) -> None:
    graph = two_islands(directed=directed)
    write_store(graph, tmp_path / "store", method="natural")
    results = run_threads(
        one_step, len(runs) - 1, tmp_path / "store", CONFIG, np.array(runs, np.int64)
    )
    check(graph, results, CONFIG)


@pytest.mark.parametrize("ranks", [2, 4])
def test_equals_the_dense_reference_over_gloo(tmp_path: Path, ranks: int) -> None:
    graph = awkward(directed=True, weighted=True)
    write_store(graph, tmp_path / "store", cells=8)
    check(graph, run_ranks(one_step, ranks, tmp_path / "store", CONFIG), CONFIG)


def losses(comm: Comm, store: Path, config: TrainConfig) -> list[float]:
    trainer = Trainer.create(Store.open(store), config, comm, torch.device("cpu"))
    curve: list[float] = []
    trainer.run(lambda line: curve.append(line["loss"]))
    return curve


def test_ten_epochs_give_one_loss_curve(tmp_path: Path) -> None:
    write_store(awkward(), tmp_path / "store", cells=8)
    one, two, four = (run_ranks(losses, ranks, tmp_path / "store", CONFIG) for ranks in (1, 2, 4))
    assert len(one[0]) == CONFIG.epochs
    assert one[0][-1] != one[0][0]
    for curve in (*two, *four):
        np.testing.assert_allclose(curve, one[0], rtol=1e-10)
