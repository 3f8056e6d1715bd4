"""Ranks on several hosts that others have started: torchrun, srun, or anything that sets RANK."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import network
import numpy as np
import pytest
from graphs import awkward
from jobs import run_here, start_forked
from network import Network, wait_until

from gnndist import TrainConfig, job
from gnndist.errors import FAILED, USER_MISTAKE
from gnndist.hosts import Hosts
from gnndist.store import Store, write_store
from gnndist.training.rundir import RunDir

OPTIONS = {"hidden": 8, "epochs": 8, "threads": 1, "dtype": "float64", "timeout": 30.0}
FLAGS = [part for name, value in OPTIONS.items() for part in (f"--{name}", str(value))]
PORT = 29517


@pytest.fixture
def two() -> Iterator[Network]:
    if reason := network.why_not():
        pytest.skip(reason)
    with Network(2) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(awkward(vertices=60), tmp_path_factory.mktemp("ranks") / "store", cells=8)


@pytest.fixture(scope="module")
def one_host(store: Store, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of one rank."""
    out = tmp_path_factory.mktemp("one") / "run"
    job.train(store, TrainConfig(**OPTIONS), out=out, start=start_forked, say=lambda line: None)
    return losses(out)


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in RunDir.open(run).metrics()]


class Ranks:
    """A rank on each host, with nobody to watch them."""

    def __init__(self, net: Network, store: Store, folder: Path, *more: list[str]) -> None:
        self.logs = [folder / f"rank{rank}.txt" for rank in range(2)]
        train = ["train", str(store.path), "--out", str(folder / "run"), *FLAGS]
        self.processes = [
            net.run_on(rank, run_here, [*train, *more[rank]], _place(rank), self.logs[rank])
            for rank in range(2)
        ]

    def codes(self, timeout_s: float = 30) -> list[int]:
        wait_until(lambda: not any(p.is_alive() for p in self.processes), timeout_s)
        return [p.exitcode for p in self.processes]

    def errors(self) -> list[str]:
        """What all ranks have said went wrong."""
        lines = "\n".join(log.read_text() for log in self.logs).splitlines()
        return [line for line in lines if line.startswith("gnndist: ")]


def _place(rank: int) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GLOO", "GNNDIST"))}
    return {
        **kept,
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "hosta",
        "MASTER_PORT": str(PORT),
    }


def test_ranks_on_two_hosts_train_as_one(
    two: Network, store: Store, tmp_path: Path, one_host: list[float]
) -> None:
    ranks = Ranks(two, store, tmp_path, [], [])
    assert ranks.codes() == [0, 0], ranks.errors()
    np.testing.assert_allclose(losses(tmp_path / "run"), one_host, rtol=1e-10)
    assert two.bytes_sent(0) > 10_000  # over eth0, though nobody has named it


def test_ranks_that_were_told_different_things(two: Network, store: Store, tmp_path: Path) -> None:
    ranks = Ranks(two, store, tmp_path, [], ["--lr", "0.5"])
    assert ranks.codes() == [USER_MISTAKE, USER_MISTAKE]
    (line,) = ranks.errors()
    assert line.endswith(
        "rank 1 on hostb has lr 0.5, rank 0 on hosta has 0.01: all ranks need the same"
    )
    assert not (tmp_path / "run/config.json").exists()


@pytest.mark.slow
def test_ranks_with_different_stores(two: Network, store: Store, tmp_path: Path) -> None:
    other = write_store(awkward(vertices=60, seed=1), tmp_path / "other", cells=8)
    two.mount(1, other.path, store.path)
    ranks = Ranks(two, store, tmp_path, [], [])
    assert ranks.codes() == [USER_MISTAKE, USER_MISTAKE]
    (line,) = ranks.errors()
    assert f"rank 1 on hostb has a store with fingerprint {other.fingerprint}" in line
    assert store.fingerprint in line


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_that_dies_ends_the_other(
    two: Network, store: Store, tmp_path: Path, killed: int
) -> None:
    long = ["--epochs", "100000"]
    ranks = Ranks(two, store, tmp_path, long, long)
    metrics = tmp_path / "run/metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 5)
    two.kill(killed)
    codes = ranks.codes()
    assert codes[killed] == -signal.SIGKILL
    assert codes[1 - killed] == FAILED
    (line,) = ranks.errors()
    name = two.names[1 - killed]
    assert re.search(
        rf"error: rank {1 - killed} on {name} \(epoch \d+, \w+, in an exchange\).*: lost contact "
        r"with the other ranks: .+",
        line,
    )
    assert "GLHF" not in line  # torch's own advice


def _agent_of_torchrun(
    folder: str, host: int, train: list[str], environment: dict[str, str]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with Path(folder, f"torchrun{host}.txt").open("wb") as output:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
        launcher += ["--nproc-per-node", "1", "--rdzv-backend", "c10d"]
        launcher += ["--rdzv-endpoint", f"hosta:{PORT}", "-m", "gnndist", *train]
        done = subprocess.run(launcher, stdout=output, stderr=output)
    sys.exit(done.returncode)


@pytest.mark.slow
def test_torchrun_by_hand(
    two: Network, store: Store, tmp_path: Path, one_host: list[float]
) -> None:
    train = ["train", str(store.path), "--out", str(tmp_path / "run"), *FLAGS]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GLOO", "GNNDIST"))}
    agents = [
        two.run_on(host, _agent_of_torchrun, str(tmp_path), host, train, kept) for host in range(2)
    ]
    for host, agent in enumerate(agents):
        agent.join(timeout=120)
        assert agent.exitcode == 0, (tmp_path / f"torchrun{host}.txt").read_text()
    np.testing.assert_allclose(losses(tmp_path / "run"), one_host, rtol=1e-10)


@pytest.mark.slow
def test_the_command_with_a_remote_shell(
    two: Network, store: Store, tmp_path: Path, one_host: list[float]
) -> None:
    command = [sys.executable, "-m", "gnndist", "train", str(store.path)]
    command += ["--hosts", ",".join(two.names), "--remote-shell", two.shell(tmp_path)]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run"), *FLAGS],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "with 2 ranks on 2 hosts" in done.stdout
    assert "epoch 8/8" in done.stdout
    np.testing.assert_allclose(losses(tmp_path / "run"), one_host, rtol=1e-10)


@pytest.fixture
def ssh(two: Network, tmp_path: Path) -> Iterator[str]:
    """An ssh command that reaches both hosts, with keys and servers made for this test."""
    server = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    if server is None or shutil.which("ssh") is None:
        pytest.skip("no OpenSSH server and client here")
    for key in ("host_key", "user_key"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / key)]
        subprocess.run(made, check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    allowed = tmp_path / "user_key.pub"
    settings = [
        *("-h", str(tmp_path / "host_key"), "-p", "2222", "-o", f"AuthorizedKeysFile={allowed}"),
        *("-o", "StrictModes=no", "-o", "PidFile=none", "-o", "UsePAM=no"),
        *("-o", "PermitRootLogin=yes"),
    ]
    servers = [two.run_on(host, os.execv, server, [server, "-D", *settings]) for host in range(2)]
    reach = (
        f"ip netns exec {two.namespace(0)} ssh -p 2222 -i {tmp_path / 'user_key'} -o BatchMode=yes "
        "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    )
    for name in two.names:
        wait_until(lambda name=name: not subprocess.run([*reach.split(), name, "true"]).returncode)
    yield reach
    for process in servers:
        process.kill()
        process.join()


@pytest.mark.slow
def test_ssh(ssh: str, two: Network, store: Store, tmp_path: Path, one_host: list[float]) -> None:
    """Real servers and keys; the environment is what a login there gives."""
    hosts = Hosts(names=tuple(two.names), remote_shell=ssh)
    job.train(
        store, TrainConfig(**OPTIONS), out=tmp_path / "run", hosts=hosts, say=lambda line: None
    )
    np.testing.assert_allclose(losses(tmp_path / "run"), one_host, rtol=1e-10)
    wait_until(lambda: not _ranks_on(two))


@pytest.mark.slow
def test_nothing_stays_when_the_launcher_is_killed(
    ssh: str, two: Network, store: Store, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "gnndist", "train", str(store.path), "--hosts"]
    command += [",".join(two.names), "--remote-shell", ssh, "--out", str(tmp_path / "run")]
    launcher = subprocess.Popen([*command, *FLAGS, "--epochs", "100000"])
    metrics = tmp_path / "run/metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 5, 120)
    assert len(_ranks_on(two)) == 4  # two agents and two ranks
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not _ranks_on(two))


def _ranks_on(net: Network) -> list[int]:
    """What of gnndist runs on the hosts."""
    pids = [pid for host in range(2) for pid in net.processes(host)]
    return [pid for pid in pids if b"gnndist" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
    return b"" if command.startswith((b"ip\0", b"ssh\0", b"sshd")) else command
