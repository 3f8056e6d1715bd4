"""Runs on a GPU: the same numbers, every tensor where it belongs, and one place that decides.

What needs no real GPU runs on one that is none (`pretend_gpu`); the rest where there is one.
"""

import ast
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import awkward
from kernel_matrices import csr, normal, random_dense
from pretend_gpu import GPU as PRETENDED
from pretend_gpu import OnGpu, pretend
from processes import run_ranks
from threads import run_threads
from torch import Tensor

import gnndist
from gnndist import device as devices
from gnndist.comm import Comm, SingleComm
from gnndist.device_names import CPU, GPU
from gnndist.errors import ConfigError
from gnndist.kernels import (
    bias_relu_dropout,
    bias_relu_dropout_backward,
    dropout_key,
    hash_dropout,
    segment_max,
    segment_max_backward,
    spmm,
)
from gnndist.staging import StagedComm
from gnndist.store import Store, write_store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer
from gnndist.training.run import train_rank
from gnndist.training.rundir import RunDir

PACKAGE = Path(gnndist.__file__).parent
KNOW_DEVICES = {"device.py", "device_names.py"}
ALLOWED = {"NCCL_", "CUDA_", "nccl"}
"""environment variables that other hosts get; what a trace calls NCCL's kernels"""


def test_one_place_knows_cuda() -> None:
    """No literal and no attribute of CUDA's or NCCL's elsewhere; words in docstrings aside."""
    found = []
    for file in PACKAGE.rglob("*.py"):
        if file.name in KNOW_DEVICES:
            continue
        tree = ast.parse(file.read_text())
        prose = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            text = ""
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = "" if id(node) in prose else node.value
            elif isinstance(node, ast.Attribute):
                text = node.attr
            if any(word in text.lower() for word in ("cuda", "nccl")) and text not in ALLOWED:
                found.append(f"{file.relative_to(PACKAGE)}:{node.lineno}: {text!r}")
    assert found == []


# --- decisions ----------------------------------------------------------------------------------


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have torch say that there are so many GPUs."""

    def say(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)

    return say


def test_ranks_take_a_hosts_gpus_in_turn(
    gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(2)
    for local, index in ((0, 0), (1, 1), (2, 0)):
        monkeypatch.setenv("LOCAL_RANK", str(local))
        assert devices.pick_device("auto") == devices.pick_device(GPU) == torch.device(GPU, index)
        assert devices.pick_device(CPU) == torch.device(CPU)
    gpus(0)
    assert devices.pick_device("auto") == torch.device(CPU)
    with pytest.raises(ConfigError, match="device = 'cuda': this machine has none"):
        devices.pick_device(GPU)


def test_nccl_where_each_rank_has_a_gpu(gpus: Callable[[int], None]) -> None:
    gpus(4)
    on_gpu = torch.device(GPU, 0)
    assert devices.backend_for(on_gpu, 4) == "nccl"
    assert devices.backend_for(on_gpu, 5) == "gloo"
    assert devices.backend_for(torch.device(CPU), 1) == "gloo"


# --- the same numbers on every device -----------------------------------------------------------


Place = Callable[[], AbstractContextManager[torch.device]]
PLACES: dict[str, Place] = {
    CPU: lambda: nullcontext(torch.device(CPU)),
    "pretended": pretend,
    GPU: lambda: nullcontext(torch.device(GPU, 0)),
}


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == GPU and not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    return name


def comm_for(place: str, comm: Comm) -> Comm:
    """As a job has it whose ranks share a GPU."""
    return comm if place == CPU else StagedComm(comm)


@pytest.fixture
def on(place: str) -> Iterator[Callable[[Tensor], Tensor]]:
    """Moves tensors to the device."""
    with PLACES[place]() as device:
        yield lambda tensor: tensor.to(device)


@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_products(on: Callable[[Tensor], Tensor], weighted: bool) -> None:
    dense = random_dense(9, 12, 3)
    matrix = csr(dense, weighted)
    matrix = type(matrix)(
        indptr=on(matrix.indptr),
        indices=on(matrix.indices),
        values=None if matrix.values is None else on(matrix.values),
        num_cols=matrix.num_cols,
    )
    reference = dense if weighted else (dense != 0).double()
    x, out = normal(12, 5, seed=0), normal(9, 5, seed=1)
    torch.testing.assert_close(spmm(matrix, on(x)).cpu(), reference @ x)
    sums, before = on(out), out.clone()
    assert spmm(matrix, on(x), out=sums, accumulate=True) is sums
    torch.testing.assert_close(sums.cpu(), before + reference @ x)
    back = spmm(matrix.transpose(), on(out))
    torch.testing.assert_close(back.cpu(), reference.T @ out)


def test_dropout_masks_are_the_same(on: Callable[[Tensor], Tensor]) -> None:
    x, key = normal(50, 7, seed=0), dropout_key(1, 2, 3)
    ids = torch.arange(50) * 1000
    for rows in (12_345, ids):
        here = on(rows) if isinstance(rows, Tensor) else rows
        assert torch.equal(
            hash_dropout(on(x), 0.4, key, here).cpu(), hash_dropout(x, 0.4, key, rows)
        )
    assert not hash_dropout(on(x), 1.0, key, 0).cpu().any()


@pytest.mark.parametrize("relu", [False, True])
def test_bias_relu_dropout(on: Callable[[Tensor], Tensor], relu: bool) -> None:
    x, bias, grad = normal(30, 6, seed=0), normal(1, 6, seed=1)[0], normal(30, 6, seed=2)
    key = dropout_key(0, 1, 0)
    expected = bias_relu_dropout(x, bias, 0.5, key, 7, relu)
    out = bias_relu_dropout(on(x), on(bias), 0.5, key, 7, relu)
    torch.testing.assert_close(out.cpu(), expected)
    wanted = bias_relu_dropout_backward(grad, expected, 0.5, key, 7, relu)
    found = bias_relu_dropout_backward(on(grad), out, 0.5, key, 7, relu)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_maximum(on: Callable[[Tensor], Tensor]) -> None:
    matrix = csr(random_dense(9, 12, 3), False)
    there = type(matrix)(indptr=on(matrix.indptr), indices=on(matrix.indices), num_cols=12)
    x, grad = normal(12, 5, seed=0).round(), normal(9, 5, seed=1)
    out, ties = segment_max(matrix, x)
    out_there, ties_there = segment_max(there, on(x))
    assert torch.equal(out_there.cpu(), out)
    assert torch.equal(ties_there.cpu(), ties)
    wanted = segment_max_backward(matrix, grad, x, out, ties)
    found = segment_max_backward(there, on(grad), on(x), out_there, ties_there)
    torch.testing.assert_close(found.cpu(), wanted)


MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"input_dropout": 0.3},
    "sage": {"model": "sage", "l2_normalize": True},
    "sage, maximum": {"model": "sage", "aggr": "max"},
    "gin": {"model": "gin", "norm": "layer"},
    "gat": {"model": "gat", "heads": 2, "attention_dropout": 0.2},
    "gatv2": {"model": "gatv2", "heads": 2},
    "appnp": {"model": "appnp"},
    "sgc": {"model": "sgc", "hidden": 256, "layers": 2},
    "batch norm": {"norm": "batch", "residual": True},
    "jumping": {"jk": "max", "class_weights": "balanced", "label_smoothing": 0.1},
    "adamw": {"optimizer": "adamw", "clip_norm": 1.0, "weight_decay": 0.1},
}


def stepped(comm: Comm, store: Path, config: TrainConfig, place: str) -> Any:
    """Loss, metrics, gradients and weights of a training step, on the host."""
    with PLACES[place]() as device:
        trainer = Trainer.create(Store.open(store), config, comm_for(place, comm), device)
        generator = torch.Generator().manual_seed(5)  # ranks that are threads share torch's own
        for p in trainer.model.parameters():
            weights = torch.randn(p.shape, generator=generator, dtype=p.dtype) / 3
            p.detach().copy_(weights)
        loss = trainer.step(3)
        figures = trainer.evaluate()
        parameters = dict(trainer.model.named_parameters())
        gradients = {k: p.grad.cpu() for k, p in parameters.items() if p.grad is not None}
        return loss, figures, gradients, {k: p.detach().cpu() for k, p in parameters.items()}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(awkward(), tmp_path_factory.mktemp("devices") / "store", cells=8).path


@pytest.mark.parametrize(
    "place",
    [
        "pretended",
        pytest.param(
            GPU,
            marks=pytest.mark.skipif(
                not torch.cuda.is_available(), reason="no GPU that torch can use"
            ),
        ),
    ],
)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("model", list(MODELS))
def test_steps_equal_those_of_the_cpu(store: Path, place: str, ranks: int, model: str) -> None:
    config = TrainConfig(**{"hidden": 6, "layers": 3, "dtype": "float64", **MODELS[model]})
    for there, here in zip(
        run_threads(stepped, ranks, store, config, place),
        run_threads(stepped, ranks, store, config, CPU),
        strict=True,
    ):
        assert there[0] == pytest.approx(here[0], rel=1e-10)
        assert there[1] == pytest.approx(here[1], nan_ok=True, abs=1e-9)
        torch.testing.assert_close(there[2], here[2], rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(there[3], here[3], rtol=1e-9, atol=1e-11)


def test_ranks_that_share_a_gpu_over_gloo(store: Path, place: str) -> None:
    config = TrainConfig(hidden=6, layers=3, dtype="float64", norm="batch")
    for loss, *_ in run_ranks(stepped, 2, store, config, place):
        wanted, *_ = stepped(SingleComm(), store, config, CPU)
        assert loss == pytest.approx(wanted, rel=1e-10)


def test_a_run_on_a_gpu_resumes(
    store: Path, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints, the best weights and the figures, from a device and back to it."""
    if place == "pretended":
        monkeypatch.setattr("gnndist.training.tally.name_of", lambda device: "none")
        monkeypatch.setattr("gnndist.training.tally.peak_device_memory", lambda device: 0)
    config = TrainConfig(hidden=6, epochs=6, norm="batch", checkpoint_every=3, device=CPU)
    opened = Store.open(store)
    results = {}
    for name, stops in (("whole", [6]), ("resumed", [3, 6])):
        run = RunDir.create(tmp_path / name)
        for epochs in stops:
            part = TrainConfig(**config.to_dict() | {"epochs": epochs})
            run.write_config(part, opened, 1)
            with PLACES[place]() as device:
                results[name] = train_rank(
                    opened, part, run, SingleComm(), device, lambda line: None, resume=epochs == 6
                )
    weights = {name: RunDir.open(tmp_path / name).model() for name in results}
    for name, tensor in weights["whole"].items():
        assert torch.equal(tensor, weights["resumed"][name])
    assert results["whole"]["best_epoch"] == results["resumed"]["best_epoch"]


# --- the GPU that is none -----------------------------------------------------------------------


def test_the_pretended_gpu_notices_what_a_gpu_refuses() -> None:
    with pretend() as device:
        x = torch.ones(3, 2).to(device)
        assert isinstance(x, OnGpu)
        assert x.device == torch.zeros(2, device=device).device == PRETENDED
        assert (x.new_zeros(2) + 1.0).device == PRETENDED
        assert x.cpu().device.type == CPU
        with pytest.raises(RuntimeError, match="on the CPU"):
            x + torch.ones(3, 2)
        with pytest.raises(RuntimeError, match="on the CPU"):
            x @ torch.ones(2, 2)
        with pytest.raises(TypeError, match="numpy"):
            x.numpy()
