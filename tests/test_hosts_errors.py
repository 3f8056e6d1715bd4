"""What goes wrong before the first epoch of a job on several hosts: one line, and whose fault."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import network
import pytest
import torch
from click.testing import CliRunner
from graphs import awkward
from network import Network

from gnndist import TrainConfig, __version__, job
from gnndist.cli import cli
from gnndist.errors import USER_MISTAKE, ConfigError, JobFailed, StoreError
from gnndist.hosts import Hosts, forwarded
from gnndist.hosts.inventory import check_agreement, inventory, problem_with, uneven
from gnndist.hosts.messages import MARK, Channel, unpacked
from gnndist.network import check_interface, choose_interface, interface_towards
from gnndist.store import Store, write_store
from gnndist.training.shard import runs_of

CONFIG = TrainConfig(hidden=8, epochs=2, threads=1)


@pytest.fixture(scope="module")
def two() -> Iterator[Network]:
    if reason := network.why_not():
        pytest.skip(reason)
    with Network(2) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(awkward(), tmp_path_factory.mktemp("hosts") / "store", cells=4)


def refused(store: Store, out: Path, hosts: Hosts, net: Network | None = None) -> str:
    """The one line of a job that does not begin, and leaves nothing behind."""
    options: dict[str, Any] = {} if net is None else {"connect": net.connect}
    with pytest.raises(JobFailed) as caught:
        job.train(store, CONFIG, out=out, hosts=hosts, say=lambda line: None, **options)
    assert caught.value.code == USER_MISTAKE
    assert not out.exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- hosts that cannot be reached ---------------------------------------------------------------


def test_a_remote_shell_that_fails(store: Store, tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shell.write_text(
        "#!/bin/sh\necho hello from the login shell\necho no route to $1 >&2\nexit 255\n"
    )
    shell.chmod(0o755)
    hosts = Hosts(names=("nowhere",), remote_shell=str(shell))
    assert refused(store, tmp_path / "run", hosts) == (
        f"host nowhere cannot take part: the connection by `{shell} nowhere` ended with code 255: "
        "no route to nowhere"
    )


def test_an_interpreter_without_gnndist(store: Store, tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    shell.chmod(0o755)
    hosts = Hosts(names=("b",), remote_shell=str(shell), remote_python="/no/such/python")
    said = refused(store, tmp_path / "run", hosts)
    assert re.search(r"host b cannot take part: .*ended with code 127: .*/no/such/python", said)


def test_the_first_host_cannot_be_reached(two: Network, store: Store, tmp_path: Path) -> None:
    two.cut(1)
    try:
        said = refused(
            store, tmp_path / "run", Hosts(names=tuple(two.names), remote_shell="netns"), two
        )
    finally:
        two.restore(1)
    assert said.startswith("host hostb cannot reach host hosta on port ")
    assert "tried hosta (" in said
    assert "10.77.0.1 (" in said


def test_a_port_that_is_taken(two: Network, store: Store, tmp_path: Path) -> None:
    process = two.run_on(0, _occupy, 4567, str(tmp_path / "listening"))
    network.wait_until((tmp_path / "listening").exists)
    hosts = Hosts(names=tuple(two.names), remote_shell="netns", port=4567)
    try:
        said = refused(store, tmp_path / "run", hosts, two)
    finally:
        process.kill()
        process.join()
    assert said == "host hosta: port 4567 is taken: choose another --port"


def _occupy(port: int, sign: str) -> None:
    taken = socket.create_server(("", port))
    Path(sign).touch()
    time.sleep(60)
    taken.close()


def test_names_that_mean_the_own_host(two: Network, store: Store, tmp_path: Path) -> None:
    """A name that leads others nowhere: Debian gives a host's own name the address 127.0.1.1."""
    file = tmp_path / "hosts"
    file.write_text("127.0.0.1 localhost\n127.0.1.1 hosta\n10.77.0.2 hostb\n")
    target = Path("/etc/hosts")
    for host in range(2):
        two.mount(host, file, target)
    try:
        hosts = Hosts(names=tuple(two.names), remote_shell="netns")
        result = job.train(
            store,
            CONFIG,
            out=tmp_path / "run",
            hosts=hosts,
            say=lambda line: None,
            connect=two.connect,
        )
    finally:
        two._mounts.clear()
    assert result["ranks"] == 2


# --- hosts that do not fit together -------------------------------------------------------------


def here(**changes: Any) -> dict[str, Any]:
    return {**inventory(), "problem": None, **changes}


def test_versions_must_be_the_same() -> None:
    other = inventory()["versions"] | {"torch": "2.6.0"}
    with pytest.raises(ConfigError) as caught:
        check_agreement(["a", "b"], [here(), here(versions=other)], 1)
    mine = inventory()["versions"]["torch"]
    assert str(caught.value) == (
        f"host b has torch 2.6.0, host a has {mine}: all hosts need the same"
    )


def test_a_host_with_too_few_cores() -> None:
    with pytest.raises(ConfigError, match=r"host b has 2 cores for 4 ranks: allowed are 1 to 2"):
        check_agreement(["a", "b"], [here(cores=8), here(cores=2)], 4)
    warning = uneven(["a", "b"], [here(cores=8), here(cores=4)])
    assert warning is not None
    assert warning.startswith("warning: host b has 4 cores, host a has 8")
    assert uneven(["a", "b"], [here(), here()]) is None


def test_stores_must_be_the_same(store: Store, tmp_path: Path) -> None:
    files = {name: entry.size for name, entry in store.manifest.files.items()}
    job = {"run": None, "first": 1, "store": {"path": str(store.path), "files": files}}
    job["store"]["fingerprint"] = "abc"
    assert problem_with(job) == (
        f"the store {store.path} has fingerprint {store.fingerprint}, where the job was started it "
        "has abc: copy it again"
    )
    job["store"] |= {"fingerprint": store.fingerprint, "path": str(tmp_path)}
    assert str(problem_with(job)).startswith(f"{tmp_path} is not a store")
    job["store"]["path"] = str(store.path)
    assert problem_with(job) is None
    job["store"]["files"] |= {"features-00.npy": 1}
    assert "features-00.npy has " in str(problem_with(job))


def test_the_first_host_needs_the_run_directory(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnndist.hosts.inventory.RUN_S", 0.0)
    run = {"path": str(tmp_path / "run"), "config": "{}"}
    assert "not the one where the job was started" in str(
        problem_with({"store": None, "run": run, "first": 0})
    )
    assert problem_with({"store": None, "run": run, "first": 2}) is None


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--hosts a,a", "--hosts names a twice"),
        ("--hosts a,,b", "allowed are names"),
        ("--hosts localhost,b", "localhost, which means another machine on every host"),
        ("--hosts a,b --ranks 3", "2 hosts × 1 --ranks-per-host are 2"),
        ("--ranks-per-host 2", "--ranks-per-host 2: only with --hosts"),
        ("--port 5000", "--port 5000: only with --hosts"),
    ],
)
def test_options_that_are_refused(store: Store, tmp_path: Path, options: str, said: str) -> None:
    out = str(tmp_path / "run")
    result = CliRunner().invoke(cli, ["train", str(store.path), "--out", out, *options.split()])
    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception)


def test_how_an_agent_is_started() -> None:
    hosts = Hosts(names=("me@b", "c"), remote_shell="ssh -p 22", remote_python="/opt/my python")
    assert hosts.command(0) == [
        *("ssh", "-p", "22", "me@b"),
        "exec '/opt/my python' -P -m gnndist.hosts.agent",
    ]
    assert Hosts(names=(socket.gethostname(),)).command(0)[0] == sys.executable


def test_what_other_hosts_get_of_the_environment() -> None:
    environment = {"PATH": "/bin", "NCCL_DEBUG": "INFO", "PYTHONPATH": "/x", "HOME": "/root"}
    assert forwarded(environment) == {"NCCL_DEBUG": "INFO", "PYTHONPATH": "/x"}


# --- the way there ------------------------------------------------------------------------------


def test_the_interface_on_the_way(two: Network, tmp_path: Path) -> None:
    for host in range(2):
        two.run_on(host, _write_interfaces, str(tmp_path / two.names[host])).join()
    for name in two.names:
        assert (tmp_path / name).read_text() == "eth0 eth0 None eth0 eth0 refused lo"


def _write_interfaces(file: str) -> None:
    os.environ.pop("GLOO_SOCKET_IFNAME", None)
    found = [
        interface_towards("hosta"),
        interface_towards("10.77.0.2"),
        interface_towards("127.0.0.1"),
        choose_interface("hosta", several_hosts=True),
        choose_interface("no-such-name", several_hosts=True),
    ]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        found.append(choose_interface("hosta", several_hosts=True))
    except ConfigError:
        found.append("refused")
    found.append(choose_interface("hosta", several_hosts=False))
    Path(file).write_text(" ".join(map(str, found)))


def test_an_interface_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"GLOO_SOCKET_IFNAME = 'eth77': host \S+ has .*lo"):
        check_interface("eth77", several_hosts=False)


# --- the line protocol --------------------------------------------------------------------------


def test_messages_among_noise() -> None:
    reader, writer = os.pipe()
    answers_reader, answers_writer = os.pipe()
    channel = Channel(reader, answers_writer)
    os.write(
        writer, b"Welcome!\n\x1b[0m" + MARK + b'{"kind": "here", "port": 7}\n' + MARK + b'{"ki'
    )
    assert channel.received() == [{"kind": "here", "port": 7}]
    assert channel.noise == ["Welcome!"]
    os.write(writer, b'nd": "alive"}\nbye\n')
    assert channel.received() == [{"kind": "alive"}]
    assert not channel.ended
    os.close(writer)
    assert channel.received() == []
    assert channel.ended
    for descriptor in (reader, answers_reader):
        os.close(descriptor)
    channel.send("into a pipe that nobody reads")
    os.close(answers_writer)


def test_an_agent_ends_when_its_launcher_is_gone() -> None:
    agent = subprocess.Popen(
        [sys.executable, "-P", "-m", "gnndist.hosts.agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    said, _ = agent.communicate(b"", timeout=60)
    assert agent.returncode == 0
    assert said == MARK + b'{"kind": "ended"}\n'


@pytest.mark.parametrize("terminal", [None, {"columns": 90, "lines": 30, "term": "xterm"}])
def test_what_an_agent_and_its_launcher_say(
    tmp_path: Path, terminal: dict[str, Any] | None
) -> None:
    """From the job to its end, with a rank that only prints its version."""
    agent = subprocess.Popen(
        [sys.executable, "-P", "-m", "gnndist.hosts.agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    channel = Channel(agent.stdout.fileno(), agent.stdin.fileno())
    said: dict[str, list[dict[str, Any]]] = {}

    def hear(kind: str) -> dict[str, Any]:
        def heard() -> bool:
            for message in channel.received():
                said.setdefault(message["kind"], []).append(message)
            return kind in said

        network.wait_until(heard)
        return said[kind][0]

    job = {"arguments": ["--version"], "environment": {"PYTHONWARNINGS": "default"}}
    job |= {"folder": str(tmp_path), "ranks": 1, "first": 0, "count": 1, "port": 0, "token": "t"}
    channel.send("job", **job, store=None, run=None, terminal=terminal)
    here = hear("here")
    assert here["problem"] is None
    assert here["name"] == socket.gethostname()
    channel.send("go", address="127.0.0.1", port=here["port"])
    assert hear("exit") | {"note": None} == {"kind": "exit", "rank": 0, "code": 0, "note": None}
    output = b"".join(unpacked(message["text"]) for message in said["out"])
    assert output.strip().endswith(__version__.encode())
    assert (b"\r\n" in output) == (terminal is not None)  # as a terminal ends its lines
    channel.send("end")
    hear("ended")
    assert agent.wait(timeout=20) == 0


# --- parts of a store ---------------------------------------------------------------------------


def test_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnndist.store.layout.GROUP_BYTES", 1024)
    whole = write_store(awkward(vertices=60), tmp_path / "store", cells=8)
    out = tmp_path / "packed"
    pack = ["pack", str(whole.path), "--hosts", "a,b", "--ranks-per-host", "2", "--out", str(out)]
    said = CliRunner().invoke(cli, pack, catch_exceptions=False).output
    assert f"{out}/a: " in said
    runs = runs_of(whole, 4)
    for name, start, stop in (("a", runs[0], runs[2]), ("b", runs[2], runs[4])):
        part = Store.open(out / name, partial=True)
        part.verify(start, stop)
        assert part.fingerprint == whole.fingerprint
        assert torch.equal(part.features(start, stop), whole.features(start, stop))
        for file in part.path.iterdir():
            assert file.samefile(whole.path / file.name)
        with pytest.raises(StoreError, match=r"is missing.*packed for other ranks"):
            part.verify()
    refused = CliRunner().invoke(cli, pack).exception
    assert isinstance(refused, ConfigError)
    assert "--overwrite" in str(refused)
    assert CliRunner().invoke(cli, [*pack, "--overwrite"]).exit_code == 0
    pack[3] = "../a,b"
    assert "allowed are a number or different names" in str(CliRunner().invoke(cli, pack).exception)
