"""The model zoo: on any number of ranks what it is on one, and its options."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import awkward
from layers import empty_in_the_middle, even_runs, weighted
from processes import run_ranks
from threads import run_threads

from gnndist.comm import Comm
from gnndist.errors import ConfigError
from gnndist.nn.models import MODELS, build_model
from gnndist.store import Store, write_store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer, make_model

COMMON: dict[str, Any] = {
    "layers": 3,
    "hidden": 6,
    "dropout": 0.4,
    "input_dropout": 0.2,
    "dtype": "float64",
    "seed": 4,
    "epochs": 10,
}
ATTENTION: dict[str, Any] = {"heads": 3, "attention_dropout": 0.3}
CONFIGS: dict[str, dict[str, Any]] = {
    "gcn": {"model": "gcn"},
    "gcn batch": {"model": "gcn", "norm": "batch"},
    "gcn layer residual": {"model": "gcn", "norm": "layer", "residual": True},
    "sage": {"model": "sage", "l2_normalize": True},
    "sage max batch cat": {"model": "sage", "aggr": "max", "norm": "batch", "jk": "cat"},
    "sage sum residual": {"model": "sage", "aggr": "sum", "residual": True, "norm": "layer"},
    "gin": {"model": "gin", "train_eps": True},
    "gin batch max": {"model": "gin", "norm": "batch", "jk": "max"},
    "gat": {"model": "gat", "output_heads": 2, **ATTENTION},
    "gat batch residual": {"model": "gat", "norm": "batch", "residual": True, **ATTENTION},
    "gatv2": {"model": "gatv2", **ATTENTION},
    "gatv2 lstm": {"model": "gatv2", "jk": "lstm", "norm": "layer", **ATTENTION},
    "sgc": {"model": "sgc", "layers": 2, "hidden": 256, "dropout": 0.5, "hops": 3},
    "appnp": {"model": "appnp", "hops": 4, "teleport": 0.2},
}


def config(name: str, **changes: Any) -> TrainConfig:
    return TrainConfig(**COMMON | CONFIGS[name] | changes)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directed, weighted with zeros and negatives, isolated vertices, a hub, loops."""
    path = tmp_path_factory.mktemp("models") / "store"
    write_store(weighted(awkward(directed=True)), path, cells=8)
    return path


State = dict[str, torch.Tensor]


def initial(store: Path, config: TrainConfig) -> State:
    """The weights that a run starts from: threads would draw them from one generator at once."""
    return make_model(Store.open(store), config).double().state_dict()


def trainer_of(
    comm: Comm, store: Path, config: TrainConfig, state: State, runs: Any = None
) -> Trainer:
    torch.set_num_threads(1)
    trainer = Trainer.create(Store.open(store), config, comm, torch.device("cpu"), runs=runs)
    trainer.model.load_state_dict(state)
    return trainer


def one_step(
    comm: Comm, store: Path, config: TrainConfig, state: State, runs: Any
) -> dict[str, Any]:
    """A training step with everything on, then predictions with the weights after it."""
    trainer = trainer_of(comm, store, config, state, runs)
    loss = trainer.step(3)
    gradients = {k: p.grad.clone() for k, p in trainer.model.named_parameters()}
    predictions = trainer.logits()
    return {
        "ids": trainer.shard.original_ids,
        "loss": loss,
        "gradients": gradients,
        "state": {k: v.clone() for k, v in trainer.model.state_dict().items()},
        "predictions": predictions.numpy(),
    }


def check(found: list[dict[str, Any]], one: dict[str, Any]) -> None:
    for result in found:
        assert result["loss"] == pytest.approx(one["loss"], rel=1e-10)
        for what in ("gradients", "state"):
            assert result[what].keys() == one[what].keys()
            for name, value in one[what].items():
                torch.testing.assert_close(result[what][name], value, rtol=1e-7, atol=1e-9)
    ids = np.concatenate([result["ids"] for result in found])
    predictions = np.concatenate([result["predictions"] for result in found])
    np.testing.assert_allclose(
        predictions[np.argsort(ids)], one["predictions"][np.argsort(one["ids"])], rtol=1e-7
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_on_any_number_of_ranks(store: Path, name: str) -> None:
    vertices = Store.open(store).num_vertices
    chosen = config(name)
    state = initial(store, chosen)
    (one,) = run_threads(one_step, 1, store, chosen, state, even_runs(vertices, 1))
    zero = [name for name, g in one["gradients"].items() if float(g.abs().max()) == 0]
    # A shift of all layers' scores changes no softmax: rounding may or may not leave a gradient.
    assert set(zero) <= {"jump.att.bias"}
    for ranks, cut in [
        (2, even_runs),
        (3, empty_in_the_middle),
        (4, even_runs),
        (7, empty_in_the_middle),
    ]:
        check(run_threads(one_step, ranks, store, chosen, state, cut(vertices, ranks)), one)
    everywhere = config(name, active_sets=False)
    check(run_threads(one_step, 2, store, everywhere, state, even_runs(vertices, 2)), one)


def losses(comm: Comm, store: Path, runs: list[tuple[TrainConfig, State]]) -> list[list[float]]:
    curves: list[list[float]] = []
    for chosen, state in runs:
        trainer = trainer_of(comm, store, chosen, state)
        curve: list[float] = []
        trainer.run(lambda line, curve=curve: curve.append(line["loss"]))
        curves.append(curve)
    return curves


def test_ten_epochs_give_one_loss_curve(store: Path) -> None:
    configs = [(config(name), initial(store, config(name))) for name in CONFIGS]
    (one,) = run_threads(losses, 1, store, configs)
    for curves in run_threads(losses, 4, store, configs):
        check_curves(curves, one)
    for curves in run_ranks(losses, 2, store, configs):
        check_curves(curves, one)


def check_curves(found: list[list[float]], wanted: list[list[float]]) -> None:
    for name, curve, one in zip(CONFIGS, found, wanted, strict=True):
        assert len(one) == 10
        assert one[0] != one[-1]
        np.testing.assert_allclose(curve, one, rtol=1e-7, err_msg=name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "mlp"}, "model 'mlp': allowed are gcn, sage, gin, gat, gatv2, sgc, appnp"),
        ({"model": "gcn", "heads": 4}, "heads = 4: model gcn has no such option; it has hidden"),
        ({"model": "sgc", "norm": "batch"}, "norm = 'batch': model sgc has no such option"),
        ({"model": "appnp", "residual": True}, "residual = True: model appnp has no"),
        ({"model": "gat", "aggr": "max"}, "aggr = 'max': model gat has no such option"),
        ({"model": "sage", "hops": 3}, "hops = 3: model sage has no such option"),
        ({"model": "gat", "hidden": 30, "heads": 8}, "hidden = 30, heads = 8: hidden must be"),
        ({"norm": "group"}, "norm = 'group': allowed are none, batch, layer"),
    ],
)
def test_options_that_a_model_does_not_have(
    store: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_model(Store.open(store), TrainConfig(**changes))


def test_every_model_has_the_options_it_names() -> None:
    """No option of the config is without a model, and every model builds with its defaults."""
    from gnndist.training.loop import MODEL_OPTIONS

    defaults = TrainConfig().to_dict()
    taken: set[str] = set()
    for name in MODELS:
        for option in MODEL_OPTIONS:
            try:
                build_model(name, 8, 3, {option: (defaults[option], object())})
                taken.add(option)
            except ConfigError as error:
                assert "has no such option" in str(error)  # noqa: PT017
    assert taken == set(MODEL_OPTIONS)


def test_depth_is_what_a_forward_pass_uses() -> None:
    assert build_model("gcn", 4, 2, {"layers": (3, 2)}).num_layers == 3
    assert build_model("sgc", 4, 2, {"hops": (3, 0)}).num_layers == 3
    assert build_model("sgc", 4, 2, {}).num_layers == 2
    assert build_model("appnp", 4, 2, {}).num_layers == 10
