"""A rank that is killed, raises, hangs or runs out of something ends its job, with one message.

Real processes and real signals on a tiny graph; `faulty.Model` fails where it is told to.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from faulty import hang_for_ever
from graphs import awkward
from jobs import Forked, start_forked, warm_up

from gnndist import TrainConfig, job
from gnndist.errors import FAILED, STOPPED, USER_MISTAKE, JobFailed, JobStopped
from gnndist.store import Store, write_store
from gnndist.training.checkpoint import Checkpoints
from gnndist.training.rundir import RunDir

CONFIG = TrainConfig(
    model="faulty:Model", hidden=8, epochs=6, eval_every=1, checkpoint_every=1, threads=1
)
SOON_S = 30


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    warm_up()
    return write_store(awkward(), tmp_path_factory.mktemp("failure") / "store", cells=8)


class Jobs:
    """Starts jobs and knows the processes of all their ranks."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.pids: list[int] = []
        self.said: list[str] = []

    def start(self, *where: Any) -> Forked:
        rank = start_forked(*where)
        self.pids.append(rank.pid)
        return rank

    def train(self, out: Path, config: TrainConfig = CONFIG, **options: Any) -> dict[str, Any]:
        say = self.said.append
        return job.train(self.store, config, out=out, ranks=2, start=self.start, say=say, **options)

    def resume(self, run: Path, **options: Any) -> dict[str, Any]:
        return job.resume(run, start=self.start, say=self.said.append, **options)

    def failure(self, out: Path, config: TrainConfig = CONFIG, **options: Any) -> JobFailed:
        """The failure of a job that fails soon."""
        begun = time.monotonic()
        with pytest.raises(JobFailed) as caught:
            self.train(out, config, **options)
        assert time.monotonic() - begun < SOON_S
        assert "\n" not in str(caught.value)
        return caught.value


@pytest.fixture
def jobs(store: Store) -> Iterator[Jobs]:
    """Jobs of which no process is left afterwards."""
    jobs = Jobs(store)
    yield jobs
    assert jobs.pids
    assert [pid for pid in jobs.pids if psutil.pid_exists(pid)] == []


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Tell the ranks to fail."""

    def set_fault(**what: Any) -> None:
        monkeypatch.setenv("FAULT", json.dumps(what))

    return set_fault


def final_tensors(run: Path) -> dict[str, torch.Tensor]:
    """Weights, optimiser and best weights after the last epoch."""
    newest = Checkpoints(run / "checkpoints").newest(pytest.fail)
    assert newest is not None
    return newest.tensors


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        assert torch.equal(tensor, b[name]), name


@pytest.fixture(scope="module")
def undisturbed(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on two ranks that nothing happens to."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    Jobs(store).train(out)
    return out


# --- killed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("start", "(plan)"),
        ("forward", "(epoch 3, forward)"),
        ("backward", "(epoch 3, backward)"),
        ("evaluate", "(epoch 3, evaluate)"),
    ],
)
def test_a_killed_rank_is_named(
    jobs: Jobs, tmp_path: Path, fault: Callable[..., None], rank: int, where: str, said: str
) -> None:
    fault(kind="kill", where=where, rank=rank, epoch=0 if where == "start" else 3)
    error = jobs.failure(tmp_path / "run")
    assert error.code == FAILED
    assert f"rank {rank} on {os.uname().nodename} was killed by SIGKILL" in str(error)
    assert said in str(error)


def test_killed_while_a_checkpoint_is_half_written(
    jobs: Jobs, tmp_path: Path, fault: Callable[..., None], undisturbed: Path
) -> None:
    fault(kind="kill", where="checkpoint", rank=0, epoch=4)
    error = jobs.failure(tmp_path / "run")
    assert re.search(r"SIGKILL .*\(epoch 4, checkpoint\).*epoch 3 is saved", str(error))
    assert list((tmp_path / "run").rglob("*.partial"))
    assert Checkpoints(tmp_path / "run/checkpoints").epochs() == [2, 3]
    fault()
    jobs.resume(tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.partial"))
    assert_same(final_tensors(tmp_path / "run"), final_tensors(undisturbed))


# --- hangs --------------------------------------------------------------------------------------


def test_a_suspended_rank_is_named(jobs: Jobs, tmp_path: Path, fault: Callable[..., None]) -> None:
    fault(kind="suspend", where="forward", rank=1, epoch=3)
    config = TrainConfig(**CONFIG.to_dict() | {"timeout": 2.0})
    error = jobs.failure(tmp_path / "run", config)
    assert "rank 1" in str(error)
    assert "suspended" in str(error)
    assert "(epoch 3, forward)" in str(error)


def test_a_hanging_rank_is_named_and_says_where(
    jobs: Jobs, tmp_path: Path, fault: Callable[..., None]
) -> None:
    fault(kind="hang", where="backward", rank=0, epoch=3)
    config = TrainConfig(**CONFIG.to_dict() | {"timeout": 2.0})
    error = jobs.failure(tmp_path / "run", config)
    assert "rank 0" in str(error)
    assert "hangs (epoch 3, backward)" in str(error)
    assert hang_for_ever.__name__ in (tmp_path / "run/logs/rank-0.log").read_text()


# --- raises -------------------------------------------------------------------------------------


def test_an_exception_in_one_rank(jobs: Jobs, tmp_path: Path, fault: Callable[..., None]) -> None:
    fault(kind="raise", where="forward", rank=1, epoch=3)
    error = jobs.failure(tmp_path / "run")
    assert error.code == FAILED
    assert "rank 1" in str(error)
    assert "failed (epoch 3, forward): ValueError: a bug in the model" in str(error)
    assert "Traceback" in (tmp_path / "run/logs/rank-1.log").read_text()
    assert "a bug in the model" not in (tmp_path / "run/logs/rank-0.log").read_text()


def test_out_of_memory(jobs: Jobs, tmp_path: Path, fault: Callable[..., None]) -> None:
    fault(kind="memory", where="backward", rank=0, epoch=2)
    error = jobs.failure(tmp_path / "run")
    assert "rank 0" in str(error)
    assert "ran out of memory (epoch 2, backward)" in str(error)


def test_a_bad_file_is_the_users_to_mend(
    jobs: Jobs, tmp_path: Path, fault: Callable[..., None]
) -> None:
    fault()
    broken = tmp_path / "store"
    shutil.copytree(jobs.store.path, broken)
    file = broken / "features-00.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    jobs.store = Store.open(broken)
    error = jobs.failure(tmp_path / "run")
    assert error.code == USER_MISTAKE
    assert f"{file} was altered" in str(error)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("forward", "first in the output of inner.convs.0 on rank 1"),
        ("backward", "first in the gradient of inner.convs.1.bias on rank 1"),
    ],
)
def test_a_number_that_is_not_finite(
    jobs: Jobs, tmp_path: Path, fault: Callable[..., None], where: str, said: str
) -> None:
    fault(kind="nan", where=where, rank=1, epoch=3)
    error = jobs.failure(tmp_path / "run", max_restarts=3)
    assert error.code == FAILED
    assert "epoch 3 has loss" in str(error)
    assert said in str(error)
    assert Checkpoints(tmp_path / "run/checkpoints").epochs() == [1, 2]


# --- the run directory fails --------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_loses_nothing(
    jobs: Jobs,
    tmp_path: Path,
    small_disk: Path,
    fault: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: Path,
) -> None:
    fault()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (small_disk / "filler").write_bytes(bytes(200_000))
    config = TrainConfig(**CONFIG.to_dict() | {"keep_checkpoints": 100})
    error = jobs.failure(small_disk / "run", config)
    assert error.code == USER_MISTAKE
    assert "cannot write" in str(error)
    assert "the disk is full" in str(error)
    (rescue,) = tmp_path.glob("gnndist-run-*")
    assert f"--resume {rescue}" in str(error)
    whole = Checkpoints(small_disk / "run/checkpoints").newest(pytest.fail)
    assert whole is not None
    assert 1 <= whole.epoch < CONFIG.epochs
    jobs.resume(rescue)
    assert_same(final_tensors(rescue), final_tensors(undisturbed))


def test_a_vanished_run_directory(
    jobs: Jobs, tmp_path: Path, fault: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    fault(kind="vanish", where="forward", rank=0, epoch=3, folder=str(tmp_path / "run"))
    error = jobs.failure(tmp_path / "run")
    assert "the directory has vanished" in str(error)
    (rescue,) = tmp_path.glob("gnndist-run-*")
    assert Checkpoints(rescue / "checkpoints").epochs() == [3]


# --- stopped ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_lets_the_epoch_finish(
    jobs: Jobs, tmp_path: Path, fault: Callable[..., None], number: int, undisturbed: Path
) -> None:
    fault()
    config = TrainConfig(**CONFIG.to_dict() | {"checkpoint_every": 0, "epochs": 100_000})
    run = tmp_path / "run"

    def signal_in_training() -> None:
        while not (run / "metrics.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=signal_in_training).start()
    with pytest.raises(JobStopped) as stopped:
        jobs.train(run, config)
    assert stopped.value.code == STOPPED
    (epoch,) = Checkpoints(run / "checkpoints").epochs()
    assert f"stopped after epoch {epoch}; epoch {epoch} is saved" in str(stopped.value)
    assert [line["epoch"] for line in RunDir.open(run).metrics()] == list(range(1, epoch + 1))


# --- restarts -----------------------------------------------------------------------------------


def test_no_more_restarts_than_allowed(
    jobs: Jobs, tmp_path: Path, fault: Callable[..., None]
) -> None:
    fault(kind="kill", where="forward", rank=1, epoch=3)
    assert "rank 1" in str(jobs.failure(tmp_path / "run", max_restarts=2))
    assert [line.partition("; restart ")[2] for line in jobs.said[1:]] == ["1 of 2", "2 of 2"]


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_nothing(
    jobs: Jobs, tmp_path: Path, fault: Callable[..., None]
) -> None:
    kills = 20
    config = TrainConfig(**CONFIG.to_dict() | {"epochs": 60, "schedule": "cosine"})
    fault()
    jobs.train(tmp_path / "undisturbed", config)
    fault(kind="random", seed=5, within_epochs=4, attempts=kills)
    result = jobs.train(tmp_path / "run", config, max_restarts=kills)
    assert sum("SIGKILL" in line for line in jobs.said) > kills // 2
    assert result["epochs"] == config.epochs
    assert_same(final_tensors(tmp_path / "run"), final_tensors(tmp_path / "undisturbed"))
    runs = [RunDir.open(tmp_path / name) for name in ("run", "undisturbed")]
    one, other = ([line["loss"] for line in run.metrics()] for run in runs)
    assert one == other
