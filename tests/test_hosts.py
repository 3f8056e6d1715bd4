"""One job on several hosts, each a network namespace with an address and a name of its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import network
import numpy as np
import pytest
from graphs import awkward
from network import Network

from gnndist import TrainConfig, job
from gnndist.hosts import Hosts
from gnndist.store import Store, write_store
from gnndist.training.rundir import RunDir

CONFIG = TrainConfig(
    hidden=8, epochs=8, checkpoint_every=1, threads=1, dtype="float64", timeout=30.0
)
LONG = TrainConfig(**CONFIG.to_dict() | {"epochs": 100_000, "checkpoint_every": 20})
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
        assert not any(hosts.processes(host) for host in range(2))


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
