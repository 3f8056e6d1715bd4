"""One config for the command line, TOML files and Python; the recipes."""

import json
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from graphs import awkward

from gnndist import ConfigError, RunError, TrainConfig, job
from gnndist.cli.options import config_options, given
from gnndist.store import write_store
from gnndist.training.config_files import combined, read_options
from gnndist.training.rundir import RunDir

DATASETS = Path(__file__).parents[1] / "datasets"
RECIPES = sorted(DATASETS.glob("*/*.toml"))


def file(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def from_command_line(*arguments: str) -> dict[str, Any]:
    """What the options of a command line come to."""
    found: dict[str, Any] = {}

    @click.command()
    @config_options(TrainConfig)
    def command(**options: Any) -> None:
        found.update(given(options))

    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found


def test_command_line_over_file_over_recipe_over_default(tmp_path: Path) -> None:
    recipe = file(tmp_path, "[train]\nlr = 0.1\nepochs = 5\nhidden = 7\n", "recipe.toml")
    mine = file(tmp_path, "[train]\nlr = 0.2\nepochs = 6\n")
    config = combined([recipe, mine], from_command_line("--lr", "0.3"))
    assert (config.lr, config.epochs, config.hidden) == (0.3, 6, 7)
    assert config.dropout == TrainConfig().dropout


def test_every_option_can_come_from_everywhere(tmp_path: Path) -> None:
    """A value that is not the default, by command line, by file and by hand."""
    for item in fields(TrainConfig):
        limits = item.metadata["option"]
        value: Any
        if limits.allowed:
            value = limits.allowed[-1]
        elif isinstance(item.default, bool):
            value = not item.default
        elif isinstance(item.default, int):
            value = item.default + 1
        elif isinstance(item.default, float):
            value = 0.125
        elif item.name == "model":
            value = "package.module:Class"
        else:
            continue
        flag = "--" + item.name.replace("_", "-")
        if isinstance(value, bool):
            arguments = [flag if value else f"--no-{flag[2:]}"]
        else:
            arguments = [flag, str(value)]
        by_hand = TrainConfig(**{item.name: value})
        text = f"[train]\n{item.name} = {json.dumps(value)}\n"
        assert combined([], from_command_line(*arguments)) == by_hand
        assert combined([file(tmp_path, text)], {}) == by_hand


def test_a_saved_config_is_the_config() -> None:
    config = TrainConfig(lr=0.3, model="a.b:C", checkpoint_minutes=0.5)
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[train]\nlearning_rate = 0.1\n", "unknown option 'learning_rate': allowed are"),
        ("[train]\nlr = 0\n", "lr = 0: allowed are more than 0"),
        ("[train]\nlr = inf\n", "lr = inf: allowed are more than 0, finite"),
        ("[train]\nlr = nan\n", "lr = nan: allowed are more than 0, finite"),
        (
            "[train]\nseed = 9223372036854775808\n",
            "seed = 9223372036854775808: allowed are 0 to 9223372036854775807",
        ),
        ("[train]\nlr = 'fast'\n", "lr = 'fast': allowed is a value of type float"),
        ("[train]\nepochs = 1.5\n", "epochs = 1.5: allowed is a value of type int"),
        ("[train]\nepochs = true\n", "epochs = True: allowed is a value of type int"),
        ("[train]\noptimizer = 'lion'\n", "optimizer = 'lion': allowed are adam, adamw, sgd"),
        ("lr = 0.1\n", "'lr' is not allowed at the top: allowed are the tables [train]"),
        ("[training]\nlr = 0.1\n", "'training' is not allowed at the top"),
        ("[train\n", "is not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    path = file(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        read_options(path)
    assert str(path) in str(refused.value)
    assert said in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: No such file"):
        combined([tmp_path / "none.toml"], {})


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recipes_are_configs_with_their_sources(recipe: Path) -> None:
    combined([recipe], {})
    content = tomllib.loads(recipe.read_text())
    published = content["published"]
    assert {"source", "metric", "test", "epochs"} <= published.keys()
    assert published["epochs"] == content["train"]["epochs"]
    about = (recipe.parent / "README.md").read_text()
    for word in ("Source", "Size", "Licence", "Split", "Metric"):
        assert f"**{word}**" in about, word


def test_the_data_sets_with_a_published_result_have_recipes() -> None:
    found = {f"{path.parent.name}/{path.stem}" for path in RECIPES}
    assert found >= {
        "cora/gcn",
        "pubmed/gcn",
        "ogbn-arxiv/gcn",
        "ogbn-arxiv/sage",
        "ogbn-products/gcn",
        "ogbn-products/sage",
        "reddit/sage",
        "ogbn-proteins/gcn",
        "ogbn-papers100M/sage",
        "wordnet30/sage",
    }


def test_a_run_that_is_being_trained_keeps_its_config(tmp_path: Path) -> None:
    store = write_store(awkward(), tmp_path / "store")
    run = RunDir.create(tmp_path / "run")
    run.write_config(TrainConfig(epochs=7), store, 1)
    with run.locked():
        for again in (
            lambda: job.resume(run, epochs=9),
            lambda: job.train(store, out=run.path, overwrite=True),
        ):
            with pytest.raises(RunError):
                again()
        assert run.config().epochs == 7
