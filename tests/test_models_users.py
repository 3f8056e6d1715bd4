"""Users' own models, trained by name: exact on any number of ranks as the zoo's are."""

from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import awkward
from layers import empty_in_the_middle, even_runs
from test_models import check, initial, one_step, trainer_of
from threads import run_threads

from gnndist.comm import SingleComm
from gnndist.errors import ConfigError
from gnndist.nn.models import build_model
from gnndist.store import Store, write_store
from gnndist.training.config import TrainConfig


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "store"
    write_store(awkward(directed=True), path, cells=8)
    return path


def config(name: str, **changes: Any) -> TrainConfig:
    return TrainConfig(model=f"user_models:{name}", dtype="float64", hidden=6, **changes)


@pytest.mark.parametrize("name", ["WithBatchNorm", "OfOtherLibraries", "OfUnknownDepth"])
def test_a_step_on_any_number_of_ranks(store: Path, name: str) -> None:
    if name == "OfOtherLibraries":
        pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    vertices, chosen = Store.open(store).num_vertices, config(name)
    state = initial(store, chosen)
    (one,) = run_threads(one_step, 1, store, chosen, state, even_runs(vertices, 1))
    for ranks, cut in ((2, even_runs), (3, empty_in_the_middle), (4, even_runs)):
        check(run_threads(one_step, ranks, store, chosen, state, cut(vertices, ranks)), one)


@pytest.mark.parametrize(
    ("name", "active"),
    [("WithBatchNorm", False), ("OfUnknownDepth", False), ("OfOtherLibraries", True)],
)
def test_active_sets_only_where_they_are_exact(store: Path, name: str, active: bool) -> None:
    if name == "OfOtherLibraries":
        pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    chosen = config(name)
    trainer = trainer_of(SingleComm(), store, chosen, initial(store, chosen))
    assert bool(trainer.graph.views) == active


def test_options_go_where_they_are_named() -> None:
    options = {"hidden": (5, 256), "heads": (3, 8)}
    model = build_model("user_models:OfUnknownDepth", 4, 2, options)
    assert model.options == {"hidden": 5, "heads": 3}
    with pytest.raises(ConfigError, match="heads = 3: model user_models:WithBatchNorm has no"):
        build_model("user_models:WithBatchNorm", 4, 2, options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("user_models:Missing", "does not import"),
        ("no_such_module:Model", "does not import"),
        ("user_models:__doc__", "allowed is a class or function"),
    ],
)
def test_names_that_are_no_model(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(name, 4, 2, {})


def test_what_a_model_refuses_is_an_error_of_the_config() -> None:
    with pytest.raises(ConfigError, match="model gat: hidden = 10, heads = 4"):
        build_model("gat", 4, 2, {"hidden": (10, 256), "heads": (4, 8)})
    assert isinstance(build_model("gat", 4, 2, {}), torch.nn.Module)


def test_an_output_of_another_width_is_refused(store: Path) -> None:
    chosen = config("OfAnotherWidth")
    trainer = trainer_of(SingleComm(), store, chosen, initial(store, chosen))
    classes = Store.open(store).manifest.num_classes
    for forward in (trainer.local_loss, trainer.logits):
        with pytest.raises(ConfigError, match=rf"{classes + 1}\): allowed is .* of {classes} col"):
            forward()
