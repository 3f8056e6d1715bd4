"""`gnndist train` as people run it: processes started from scratch, real signals, exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from graphs import awkward
from jobs import start_forked

import gnndist
from gnndist import TrainConfig, job
from gnndist.cli import cli
from gnndist.errors import FAILED, STOPPED
from gnndist.store import Store, write_store
from gnndist.training.rundir import RunDir

TESTS = Path(__file__).parent
PATIENCE_S = 120


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(awkward(), tmp_path_factory.mktemp("train") / "store", cells=8)


# --- without starting from scratch ------------------------------------------------------------


def test_python_trains_and_returns_the_result(store: Store, tmp_path: Path) -> None:
    said: list[str] = []
    config = TrainConfig(epochs=3, hidden=4, threads=1)
    result = gnndist.train(
        store.path, config, out=tmp_path / "run", ranks=2, say=said.append, start=start_forked
    )
    run = RunDir.open(tmp_path / "run")
    assert result == run.result()
    assert result["ranks"] == 2
    assert result["epochs"] == 3
    assert run.config() == config
    assert len(said) == 1
    again = gnndist.resume(run, epochs=5, ranks=1, say=said.append, start=start_forked)
    assert again["epochs"] == 5
    assert [line["epoch"] for line in run.metrics()] == [1, 2, 3, 4, 5]
    finished = gnndist.resume(run, say=said.append, start=start_forked)
    assert finished == again
    assert "nothing to resume" in said[-1]


def test_seeds_are_trained_one_by_one_and_summarised(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(job.train.__kwdefaults__, "start", start_forked)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[train]\nhidden = 4\nepochs = 4\nseed = 5\nthreads = 1\n")
    out = tmp_path / "run"
    arguments = ["train", str(store.path), "--out", str(out), "--config", str(recipe)]
    result = CliRunner().invoke(cli, [*arguments, "--seeds", "3"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    runs = [RunDir.open(out / f"seed-{seed}") for seed in (5, 6, 7)]
    assert [run.config().seed for run in runs] == [5, 6, 7]
    figures = [run.result()["test_accuracy"] for run in runs]
    mean = sum(figures) / 3
    std = (sum((figure - mean) ** 2 for figure in figures) / 2) ** 0.5
    summary = RunDir.open(out).result()
    assert summary["mean"]["test_accuracy"] == pytest.approx(mean)
    assert summary["std"]["test_accuracy"] == pytest.approx(std)
    assert f"{100 * mean:.2f} ± {100 * std:.2f}" in result.output
    # A seed that has its result is not trained again.
    (out / "result.json").unlink()
    (out / "seed-7" / "result.json").unlink()
    written = [(run.path / "result.json").stat().st_mtime_ns for run in runs[:2]]
    resumed = gnndist.resume(out, say=list, start=start_forked)
    assert {**resumed, "mean_epoch_s": 0} == {**summary, "mean_epoch_s": 0}
    assert written == [(run.path / "result.json").stat().st_mtime_ns for run in runs[:2]]
    # Each is what a run of its own would have been.
    alone = job.train(
        store,
        TrainConfig(hidden=4, epochs=4, seed=6, threads=1),
        out=tmp_path / "alone",
        say=list,
        start=start_forked,
    )
    assert alone["test_accuracy"] == figures[1]
    assert list(RunDir.open(tmp_path / "alone").model()) == list(runs[1].model())


def test_the_config_in_effect_is_saved_and_can_be_used_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(job.train.__kwdefaults__, "start", start_forked)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[train]\nhidden = 4\nepochs = 40\nlr = 0.5\n")
    out = tmp_path / "run"
    arguments = ["--config", str(recipe), "--epochs", "2", "--threads", "1"]
    result = CliRunner().invoke(cli, ["train", str(store.path), "--out", str(out), *arguments])
    assert result.exit_code == 0, result.output
    config = RunDir.open(out).config()
    assert (config.hidden, config.epochs, config.lr) == (4, 2, 0.5)
    arguments = ["--config", str(out / "config.toml")]
    again = tmp_path / "again"
    result = CliRunner().invoke(cli, ["train", str(store.path), "--out", str(again), *arguments])
    assert result.exit_code == 0, result.output
    assert RunDir.open(again).config() == config
    losses = [[line["loss"] for line in RunDir.open(run).metrics()] for run in (out, again)]
    assert losses[0] == losses[1]


# --- from scratch -------------------------------------------------------------------------------

Started = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Start a command; whatever is left of it afterwards is killed, and fails the test."""
    commands: list[psutil.Process] = []

    def start(*command: object, fault: dict[str, Any] | None = None) -> "subprocess.Popen[str]":
        paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-m", *map(str, command)],
            env=os.environ | {"FAULT": json.dumps(fault or {}), "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        commands.append(psutil.Process(process.pid))
        return process

    yield start
    for command in commands:
        if command.is_running() and command.status() != psutil.STATUS_ZOMBIE:
            command.kill()
            pytest.fail(f"{command} was still running")


def ranks_of(process: "subprocess.Popen[str]", count: int) -> list[psutil.Process]:
    """The processes of a job's ranks, once all are there."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = [p for p in psutil.Process(process.pid).children() if "RANK" in p.environ()]
        if len(found) == count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"no {count} ranks")


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.05)


def gone(processes: list[psutil.Process]) -> bool:
    """Whether all have ended, in a few seconds at most."""
    return not psutil.wait_procs(processes, timeout=10)[1]


TRAIN = ("--ranks", 2, "--threads", 1, "--hidden", 8, "--model", "faulty:Model")


@pytest.mark.slow
def test_a_failure_is_one_line(store: Store, tmp_path: Path, started: Started) -> None:
    run = tmp_path / "run"
    command = ("gnndist", "train", store.path, *TRAIN, "--epochs", 5, "--checkpoint-every", 1)
    fault = {"kind": "kill", "where": "backward", "rank": 1, "epoch": 3}
    process = started(*command, "--out", run, fault=fault)
    ranks = ranks_of(process, 2)
    output, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == FAILED
    (line,) = error.strip().splitlines()
    assert line.startswith("gnndist: error: rank 1 on ")
    assert "SIGKILL" in line
    assert "(epoch 3, backward)" in line
    assert f"epoch 2 is saved: continue with `gnndist train --resume {run}`" in line
    assert "Traceback" not in output
    assert gone(ranks)


@pytest.mark.slow
def test_sigterm_saves_and_a_lost_launcher_leaves_nobody(
    store: Store, tmp_path: Path, started: Started
) -> None:
    run = tmp_path / "run"
    command = ("gnndist", "train", store.path, *TRAIN, "--epochs", 1_000_000)
    process = started(*command, "--out", run)
    ranks = ranks_of(process, 2)
    wait_for(run / "metrics.jsonl")
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == STOPPED
    (line,) = error.strip().splitlines()
    assert line.startswith("gnndist: stopped after epoch ")
    assert "is saved: continue with" in line
    assert gone(ranks)

    before = (run / "metrics.jsonl").stat().st_size
    process = started("gnndist", "train", "--resume", run)
    ranks = ranks_of(process, 2)
    deadline = time.monotonic() + PATIENCE_S
    while (run / "metrics.jsonl").stat().st_size <= before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    assert gone(ranks)
    process.communicate()


@pytest.mark.slow
def test_ranks_that_torchrun_started_say_one_line(
    store: Store, tmp_path: Path, started: Started
) -> None:
    run = tmp_path / "run"
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", 2, "-m")
    command = ("gnndist", "train", store.path, *TRAIN[2:], "--epochs", 5, "--out", run)
    fault = {"kind": "raise", "where": "forward", "rank": 1, "epoch": 3}
    process = started(*torchrun, *command, fault=fault)
    _, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    (line,) = [line for line in error.splitlines() if line.startswith("gnndist: ")]
    assert "rank 1 on " in line
    log = run / "logs" / "rank-1.log"
    assert f"(epoch 3, forward) (see {log}): ValueError: a bug in the model" in line
    assert "in forward\n" not in error  # no traceback of ours beside torchrun's report
    assert "Traceback" in log.read_text()
    assert len(list(RunDir.open(run).metrics())) == 2
