"""One job on several hosts, each a network namespace with an address and a name of its own."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import network
import numpy as np
import psutil
import pytest
import torch
from click.testing import CliRunner
from graphs import awkward
from network import Network, wait_until

from gnndist import TrainConfig, job
from gnndist.cli import cli
from gnndist.comm import SingleComm
from gnndist.errors import FAILED, STOPPED, USER_MISTAKE, JobFailed, JobStopped
from gnndist.hosts import Hosts, HostsCrew, link, pack
from gnndist.store import Store, write_store
from gnndist.training.checkpoint import Checkpoints
from gnndist.training.run import predict_rank
from gnndist.training.rundir import RunDir

CONFIG = TrainConfig(
    hidden=8, epochs=8, checkpoint_every=1, threads=1, dtype="float64", timeout=30.0
)
LONG = TrainConfig(**CONFIG.to_dict() | {"epochs": 100_000, "checkpoint_every": 5})
SOON_S = 30


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(awkward(vertices=60), tmp_path_factory.mktemp("hosts") / "store", cells=8)


@pytest.fixture(scope="module")
def allowed() -> None:
    if reason := network.why_not():
        pytest.skip(reason)


@pytest.fixture
def two(allowed: None) -> Iterator[Network]:
    """Two hosts; nothing runs on them afterwards."""
    with Network(2) as hosts:
        yield hosts
        wait_until(lambda: not any(hosts.processes(host) for host in range(2)), timeout_s=10)


def train(hosts: Network, store: Store, out: Path, config: TrainConfig = CONFIG, **options: Any):
    each = options.pop("ranks_per_host", 1)
    places = Hosts(names=tuple(hosts.names), ranks_per_host=each, remote_shell="netns")
    options = {"say": lambda line: None, "connect": hosts.connect} | options
    return job.train(store, config, out=out, hosts=places, **options)


def resume(hosts: Network, run: Path, **options: Any) -> dict[str, Any]:
    places = Hosts(names=tuple(hosts.names), remote_shell="netns")
    return job.resume(run, hosts=places, connect=hosts.connect, say=lambda line: None, **options)


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in RunDir.open(run).metrics()]


@pytest.fixture(scope="module")
def one_host(store: Store, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of one rank."""
    from jobs import start_forked

    out = tmp_path_factory.mktemp("one") / "run"
    job.train(store, CONFIG, out=out, start=start_forked, say=lambda line: None)
    return losses(out)


# --- the same training --------------------------------------------------------------------------


@pytest.mark.parametrize(("hosts", "each"), [(2, 1), (2, 2), (4, 1)])
def test_hosts_train_as_one_does(
    allowed: None, store: Store, tmp_path: Path, one_host: list[float], hosts: int, each: int
) -> None:
    with Network(hosts) as net:
        result = train(net, store, tmp_path / "run", ranks_per_host=each)
        sent = [net.bytes_sent(host) for host in range(hosts)]
    np.testing.assert_allclose(losses(tmp_path / "run"), one_host, rtol=1e-10)
    ranks = json.loads((tmp_path / "run/ranks.json").read_text())["ranks"]
    assert [rank["host"] for rank in ranks] == [n for n in net.names for _ in range(each)]
    # What went over the links is what the ranks say, and headers.
    if each == 1:
        payload = [CONFIG.epochs * sum(rank["bytes_to"]) for rank in ranks]
        assert all(wire > said for wire, said in zip(sent, payload, strict=True))
    assert result["ranks"] == hosts * each


def test_four_hosts_with_the_cells_they_need(
    allowed: None, tmp_path: Path, one_host: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shared file system: each host has part of the store, and only the first the run."""
    monkeypatch.setattr("gnndist.store.layout.GROUP_BYTES", 512)
    whole = write_store(awkward(vertices=60), tmp_path / "store", cells=8)
    assert whole.manifest.groups > 4
    parts = pack(whole, tmp_path / "packed", ["hosta", "hostb", "hostc", "hostd"], 1)
    assert len({size for _, size in parts}) > 1
    (tmp_path / "nothing").mkdir()
    (tmp_path / "runs").mkdir()
    with Network(4) as net:
        for host, (part, _) in enumerate(parts):
            assert len(list(part.iterdir())) < len(list(whole.path.iterdir()))
            net.mount(host, part, whole.path)
            if host > 0:
                net.mount(host, tmp_path / "nothing", tmp_path / "runs")
        run = RunDir(path=tmp_path / "runs/run")
        train(net, whole, run.path)
        monkeypatch.setattr("gnndist.launch.HostsCrew", partial(HostsCrew, connect=net.connect))
        names = ["--hosts", ",".join(net.names), "--remote-shell", "netns"]
        file = tmp_path / "runs/predictions.npy"
        predict = ["predict", str(run.path), "--out", str(file), *names]
        assert CliRunner().invoke(cli, predict, catch_exceptions=False).exit_code == 0
        first = net.names[0]
        net.mount(0, parts[1][0], whole.path)
        with pytest.raises(JobFailed) as caught:
            train(net, whole, tmp_path / "runs/other")
    np.testing.assert_allclose(losses(run.path), one_host, rtol=1e-10)
    alone = predict_rank(run, run.config(), whole, SingleComm(), torch.device("cpu"))
    np.testing.assert_allclose(np.load(file), alone, rtol=1e-5, atol=1e-6)
    assert caught.value.code == USER_MISTAKE
    assert re.search(rf"host {first}: \S+-00.npy is missing.*gnndist pack", str(caught.value))
    assert not list((tmp_path / "nothing").iterdir())
    assert not (tmp_path / "runs/other").exists()


# --- failures -----------------------------------------------------------------------------------


class Doing:
    """A training that something is done to once it has come some way."""

    def __init__(self, run: Path, act: Callable[[], None], after: int = 10) -> None:
        self._run, self._act, self._after = run, act, after
        self._thread = threading.Thread(target=self._wait)
        self.acted_at = 0.0

    def _wait(self) -> None:
        metrics = self._run / "metrics.jsonl"
        wait_until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= self._after)
        self.acted_at = time.monotonic()
        self._act()

    def __enter__(self) -> "Doing":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join()


def fails(
    net: Network, store: Store, run: Path, act: Callable[[], None], config: TrainConfig = LONG
) -> str:
    """The one line of a training that fails soon after something is done to it."""
    with Doing(run, act) as doing, pytest.raises(JobFailed) as caught:
        train(net, store, run, config)
    assert time.monotonic() - doing.acted_at < SOON_S
    assert caught.value.code == FAILED
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_host_that_dies_is_named_and_the_training_resumes(
    two: Network, store: Store, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    said = fails(two, store, run, lambda: two.kill(1))
    assert re.search(r"^rank 1 on hostb was lost \(epoch \d+, \w+.*\)", said)
    assert "--resume" in said
    epoch = Checkpoints(run / "checkpoints").epochs()[-1]
    more = {"epochs": epoch + 5}
    resume(two, run, **more)
    train(two, store, tmp_path / "undisturbed", TrainConfig(**LONG.to_dict() | more))
    assert losses(run) == losses(tmp_path / "undisturbed")


def test_a_rank_that_dies_on_another_host_is_named(
    two: Network, store: Store, tmp_path: Path
) -> None:
    def kill_the_rank() -> None:
        (rank,) = [p for p in two.processes(1) if psutil.Process(p).ppid() in two.processes(1)]
        os.kill(rank, signal.SIGKILL)

    said = fails(two, store, tmp_path / "run", kill_the_rank)
    assert re.search(r"^rank 1 on hostb was killed by SIGKILL .*\(epoch \d+, \w+.*\)", said)


def test_a_cut_link_ends_the_training(two: Network, store: Store, tmp_path: Path) -> None:
    config = TrainConfig(**LONG.to_dict() | {"timeout": 3.0})
    said = fails(two, store, tmp_path / "run", lambda: two.cut(1), config)
    assert re.search(
        r"^rank \d on host[ab] hangs \(epoch \d+, \w+, in an exchange\): no rank has moved for "
        r"\d s and all wait for one another: the network between hosta and hostb is cut; see",
        said,
    )


def test_a_link_that_comes_back_changes_nothing(
    two: Network, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"kind": "slow", "where": "forward", "rank": 0, "epoch": 1, "seconds": 0.03}
    monkeypatch.setenv("FAULT", json.dumps(slow))  # so that it is not over before the cut
    config = TrainConfig(
        **CONFIG.to_dict() | {"model": "faulty:Model", "epochs": 40, "checkpoint_every": 0}
    )

    def pull_and_plug() -> None:
        two.cut(1)
        time.sleep(1.5)
        two.restore(1)

    with Doing(tmp_path / "run", pull_and_plug, after=5):
        train(two, store, tmp_path / "run", config)
    train(two, store, tmp_path / "undisturbed", config)
    assert losses(tmp_path / "run") == losses(tmp_path / "undisturbed")
    times = [line["epoch_s"] for line in RunDir.open(tmp_path / "run").metrics()]
    assert max(times) > 1  # it was cut in an epoch


def test_a_host_that_falls_silent_is_named(
    two: Network, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "SILENT_S", 3.0)

    def stop_everything() -> None:
        for pid in two.processes(1):
            os.kill(pid, signal.SIGSTOP)

    said = fails(two, store, tmp_path / "run", stop_everything)
    assert re.search(r"rank 1 on hostb was lost \(epoch .*no sign of life for \d s", said)
    two.kill(1)


# --- restarts and signals -----------------------------------------------------------------------


def test_a_job_on_hosts_is_started_again(
    two: Network, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig(**CONFIG.to_dict() | {"model": "faulty:Model"})
    monkeypatch.setenv("FAULT", "{}")
    train(two, store, tmp_path / "undisturbed", config)
    kill = {"kind": "kill", "where": "backward", "rank": 1, "epoch": 4, "attempts": 1}
    monkeypatch.setenv("FAULT", json.dumps(kill))
    said: list[str] = []
    result = train(two, store, tmp_path / "run", config, max_restarts=1, say=said.append)
    assert "rank 1 on hostb was killed by SIGKILL" in said[-1]
    assert said[-1].endswith("; restart 1 of 1")
    assert result["epochs"] == config.epochs
    assert losses(tmp_path / "run") == losses(tmp_path / "undisturbed")


def test_a_signal_lets_the_epoch_finish_on_every_host(
    two: Network, store: Store, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    stop = partial(os.kill, os.getpid(), signal.SIGTERM)
    with Doing(run, stop, after=5), pytest.raises(JobStopped) as stopped:
        train(two, store, run, LONG)
    assert stopped.value.code == STOPPED
    epoch = Checkpoints(run / "checkpoints").epochs()[-1]
    assert f"stopped after epoch {epoch}; epoch {epoch} is saved" in str(stopped.value)
    assert len(losses(run)) == epoch
