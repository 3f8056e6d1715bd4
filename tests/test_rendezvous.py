"""Ranks that any launcher has started find one another and agree, or say in one line why not."""

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gnndist import __version__, rendezvous
from gnndist.crew import PORT_SOCKET
from gnndist.errors import ConfigError
from gnndist.rendezvous import meet


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A port that is free, and the environment of ranks that meet there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(number))
    for name in ("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", PORT_SOCKET):
        monkeypatch.delenv(name, raising=False)
    return number


def meeting(terms: list[dict[str, Any]], *, world: int = 0, timeout_s: float = 10) -> list[str]:
    """What becomes of each rank: empty if it has met the others."""
    world = world or len(terms)

    def one(rank: int) -> Any:
        try:
            return meet(rank, world, terms[rank], timeout_s)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(terms)) as pool:
        outcomes = list(pool.map(one, range(len(terms))))
    assert all(isinstance(o, ConfigError) for o in outcomes if isinstance(o, Exception))
    return [str(o) if isinstance(o, Exception) else "" for o in outcomes]


def test_ranks_that_agree_meet(port: int) -> None:
    assert meeting([{"lr": 0.1}] * 3) == ["", "", ""]


def test_every_rank_learns_what_differs(port: int) -> None:
    host = socket.gethostname()
    said = meeting([{"lr": 0.1, "cover": True}, {"lr": 0.1, "cover": True}, {"lr": 0.2}])
    assert (
        said
        == [f"rank 2 on {host} has lr 0.2, rank 0 on {host} has 0.1: all ranks need the same"] * 3
    )


def test_versions_are_compared(port: int) -> None:
    (said, _) = meeting([{}, {"gnndist": "0.0.9"}])
    assert f"has gnndist 0.0.9, rank 0 on {socket.gethostname()} has {__version__}" in said


def test_missing_ranks_are_named(port: int) -> None:
    said = meeting([{}, {}], world=4, timeout_s=0.5)
    assert said[0] == said[1]
    assert said[0].startswith("of 4 ranks, 2, 3 have not joined within 0 s")


def test_a_port_that_is_taken(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        assert meeting([{}], world=2) == [f"port {port} is taken: choose another MASTER_PORT"]


def test_rank_0_that_is_not_there(port: int) -> None:
    with pytest.raises(ConfigError, match=rf"127.0.0.1:{port} \(MASTER_ADDR.*connection refused"):
        meet(1, 2, {}, 0.3)


def test_a_name_that_nobody_knows(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "NAME_S", 0.3)
    monkeypatch.setenv("MASTER_ADDR", "no-such-host.invalid")
    with pytest.raises(ConfigError, match=r"no-such-host\.invalid:\d+ .*unknown name"):
        meet(1, 2, {}, 600)


def test_a_socket_that_was_handed_over(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent listens before its ranks start; hosts that tried the way have hung up again."""
    listening = socket.create_server(("127.0.0.1", port))
    socket.create_connection(("127.0.0.1", port)).close()
    monkeypatch.setenv(PORT_SOCKET, str(listening.detach()))
    assert meeting([{}, {}]) == ["", ""]
