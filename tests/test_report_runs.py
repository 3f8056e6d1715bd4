"""Runs read back from disk, whatever state they are in, and `gnndist runs`."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gnndist.cli import cli
from gnndist.errors import RunError
from gnndist.report import find_runs, read_run, read_runs
from gnndist.report.tables import comparison, figures_of, options, over_seeds
from gnndist.training.config import TrainConfig
from gnndist.training.rundir import RunDir

LINES = [
    {"epoch": 1, "loss": 2.0, "epoch_s": 9.0, "bytes_sent": 100, "valid_accuracy": 0.4}
    | {"train_accuracy": 0.5, "test_accuracy": 0.3, "valid_macro_f1": 0.1},
    {"epoch": 2, "loss": 1.0, "epoch_s": 0.2, "bytes_sent": 50},
    {"epoch": 3, "loss": 0.5, "epoch_s": 0.4, "bytes_sent": 50, "valid_accuracy": 0.3}
    | {"train_accuracy": 0.9, "test_accuracy": 0.8, "valid_macro_f1": 0.9},
]


def write(
    path: Path,
    *,
    lines: list[dict[str, Any]] = LINES,
    result: dict[str, Any] | None = None,
    seeds: list[int] | None = None,
    **config: Any,
) -> Path:
    """A run directory as a training would leave it."""
    path.mkdir(parents=True)
    told = TrainConfig(epochs=3, **config).to_dict()
    about = {"config": told, "store": "/stores/digits", "fingerprint": "f", "ranks": 2}
    about["versions"] = {"gnndist": "0.1.0"}
    if seeds:
        about["seeds"] = seeds
    (path / "config.json").write_text(json.dumps(about))
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if result is not None:
        (path / "result.json").write_text(json.dumps(result))
    return path


def finished(path: Path, test: float = 0.3, **config: Any) -> Path:
    result = {"best_epoch": 1, "valid_accuracy": 0.4, "test_accuracy": test, "ranks": 2}
    result |= {"epochs": 3, "mean_epoch_s": 0.3, "halo": 4, "vertices": 40}
    return write(path, result=result, **config)


def of_seeds(path: Path, done: int) -> Path:
    """A run of three seeds, `done` of which have finished."""
    summary = None
    if done == 3:
        summary = {"mean": {"valid_accuracy": 0.4, "test_accuracy": 0.7}, "ranks": 2}
        summary |= {"std": {"valid_accuracy": 0.01, "test_accuracy": 0.02}, "mean_epoch_s": 0.3}
    write(path, lines=[], seeds=[0, 1, 2], result=summary)
    for seed in range(done):
        finished(path / f"seed-{seed}", test=0.5 + 0.1 * seed, seed=seed)
    return path


def test_a_finished_run(tmp_path: Path) -> None:
    run = read_run(finished(tmp_path / "run"))
    assert (run.state, run.progress) == ("finished", "epoch 3/3")
    assert run.metrics == ["accuracy", "macro_f1"]
    assert run.best["epoch"] == 1
    assert run.figure("test") == 0.3
    assert run.epoch_s == 0.3
    assert run.bytes_per_epoch == 50
    assert run.loss == 0.5


def test_an_unfinished_run_has_its_best_so_far(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "run"))
    assert (run.state, run.progress) == ("unfinished", "epoch 3/3")
    assert (run.best["epoch"], run.figure("test")) == (1, 0.3)
    assert run.epoch_s == pytest.approx(0.3)  # the first epoch left out
    assert run.halo is None


def test_less_is_better_for_errors(tmp_path: Path) -> None:
    lines = [{"epoch": e, "loss": 1.0, "epoch_s": 1.0, "valid_mae": m} for e, m in ((1, 2), (2, 1))]
    run = read_run(write(tmp_path / "run", lines=lines))
    assert (run.metric, run.better, run.best["epoch"]) == ("mae", -1, 2)


def test_the_metric_that_selects_comes_first(tmp_path: Path) -> None:
    line = {"epoch": 1, "loss": 1.0, "epoch_s": 1.0, "valid_micro_f1": 0.1, "valid_rocauc": 0.2}
    assert read_run(write(tmp_path / "run", lines=[line])).metrics == ["rocauc", "micro_f1"]


def test_validation_that_is_not_a_number_selects_nothing(tmp_path: Path) -> None:
    lines = [{"epoch": e, "loss": 1.0, "epoch_s": 1.0, "valid_accuracy": math.nan} for e in (1, 2)]
    assert read_run(write(tmp_path / "run", lines=lines)).best["epoch"] == 2


def test_states(tmp_path: Path) -> None:
    run = RunDir(path=write(tmp_path / "run"))
    with run.locked():
        assert read_run(run.path).state == "running"
    run.note_end("failed", "rank 1 on here: no")
    found = read_run(run.path)
    assert found.state == "failed"
    assert found.ended is not None
    assert found.ended["message"] == "rank 1 on here: no"
    with run.locked():
        assert read_run(run.path).state == "running"  # brought back
    run.forget_end()
    assert read_run(run.path).state == "unfinished"
    assert read_run(finished(tmp_path / "done")).state == "finished"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not readable JSON"),
        ("[]", "allowed is a JSON object"),
        ("{}", "has no 'config'"),
    ],
)
def test_a_broken_run_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=message):
        read_run(tmp_path)


def test_names_tell_runs_apart(tmp_path: Path) -> None:
    paths = [tmp_path / "arxiv" / "gcn", tmp_path / "cora" / "gcn", tmp_path / "cora" / "sage"]
    for path in paths:
        finished(path)
    assert [run.name for run in read_runs([*paths, paths[0]])] == ["arxiv/gcn", "cora/gcn", "sage"]


def test_a_run_of_several_seeds_stands_for_one_run_a_seed(tmp_path: Path) -> None:
    runs = read_runs([of_seeds(tmp_path / "run", 3)])
    assert [run.name for run in runs] == ["seed-0", "seed-1", "seed-2"]
    titles = [figure.title for figure in figures_of(runs)]
    total = dict(zip(titles, over_seeds(runs, figures_of(runs)), strict=True))
    assert total["test accuracy"] == "0.6000 ± 0.1000"
    assert total["ranks"] == ""
    other = read_run(finished(tmp_path / "other", hidden=7, seed=9))
    assert over_seeds([*runs, other], figures_of(runs)) == []


def test_a_seed_beside_other_runs_is_named_with_its_run(tmp_path: Path) -> None:
    runs = read_runs([of_seeds(tmp_path / "several", 2), finished(tmp_path / "one")])
    assert [run.name for run in runs] == ["several/seed-0", "several/seed-1", "one"]


def test_the_best_of_a_column_is_marked(tmp_path: Path) -> None:
    runs = [read_run(finished(tmp_path / name, test)) for name, test in (("a", 0.3), ("b", 0.8))]
    figures = [figure for figure in figures_of(runs) if figure.title == "test accuracy"]
    assert [row[0].best for row in comparison(runs, figures)] == [False, True]
    same = [figure for figure in figures_of(runs) if figure.title == "epoch time"]
    assert [row[0].best for row in comparison(runs, same)] == [False, False]


def test_options_that_differ_come_first(tmp_path: Path) -> None:
    runs = [
        read_run(finished(tmp_path / "a", hidden=7, lr=0.5)),
        read_run(finished(tmp_path / "b", hidden=8, lr=0.5)),
    ]
    rows = options(runs)
    assert (rows[0].name, rows[0].values, rows[0].differs) == ("hidden", ["7", "8"], True)
    assert [row.name for row in rows if row.changed] == ["hidden", "epochs", "lr"]
    assert sum(row.differs for row in rows) == 1


# --- the verb ----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    finished(tmp_path / "good", test=0.9)
    finished(tmp_path / "more" / "fair", test=0.5)
    of_seeds(tmp_path / "seeds", 3)
    of_seeds(tmp_path / "some", 1)
    RunDir(path=write(tmp_path / "bad", lines=[])).note_end("failed", "rank 0 on here: [no]")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"of": "another program"}')
    return tmp_path


def listed(*arguments: str) -> Any:
    done = CliRunner().invoke(cli, ["runs", *arguments])
    assert done.exit_code == 0, done.output
    return json.loads(done.output) if "--json" in arguments else done.output


def test_find_runs(folder: Path) -> None:
    found = [str(path.relative_to(folder)) for path in find_runs(folder)]
    assert found == ["bad", "good", "more/fair", "seeds", "some"]
    assert find_runs(folder / "good") == [folder / "good"]


def test_the_list(folder: Path) -> None:
    text = listed(str(folder))
    rows = {line.split()[0]: " ".join(line.split()) for line in text.splitlines() if line.split()}
    assert rows["good"].startswith("good finished gcn digits 0.9000 0.4000 300 ms 2 50 B 1 3")
    assert rows["seeds"].startswith(
        "seeds finished, 3 seeds gcn digits 0.7000 ± 0.0200 0.4000 ± 0.0100"
    )
    assert rows["some"].startswith("some unfinished, 1/3 seeds")
    assert "bad failed, epoch 0/3 gcn" in " ".join(text.split())
    assert "rank 0 on here: [no]" in text


def test_the_list_in_an_order(folder: Path) -> None:
    names = [Path(run["path"]).name for run in listed(str(folder), "--json", "--sort", "test")]
    assert names == ["good", "seeds", "fair", "bad", "some"]
    names = [Path(run["path"]).name for run in listed(str(folder), "--json", "--sort", "name")]
    assert names == ["bad", "good", "fair", "seeds", "some"]


def test_json(folder: Path) -> None:
    by_name = {Path(run["path"]).name: run for run in listed(str(folder), "--json")}
    assert by_name["good"]["test"] == 0.9
    assert by_name["good"]["state"] == "finished"
    assert by_name["seeds"]["test_std"] == 0.02
    assert by_name["seeds"]["seeds"] == [0, 1, 2]
    assert by_name["bad"] | {"state": "failed", "test": None, "epochs": 0} == by_name["bad"]
    assert by_name["bad"]["message"] == "rank 0 on here: [no]"


def test_no_runs(tmp_path: Path) -> None:
    assert "no runs" in listed(str(tmp_path))
    assert listed(str(tmp_path), "--json") == []
    done = CliRunner().invoke(cli, ["runs", str(tmp_path / "nowhere")])
    assert isinstance(done.exception, RunError)
