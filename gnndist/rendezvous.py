"""How the ranks of a job find one another, and agree on what they are about before they begin.

Rank 0 (or its launcher) serves a small store of keys at MASTER_ADDR:MASTER_PORT. Every rank leaves
there what it is: host, versions, the fingerprint of its store, its options. Rank 0 compares them
and leaves its verdict; only then is the process group made. So what differs is said in one line,
instead of hanging in a mesh of connections or training on two graphs.
"""

import errno
import json
import os
import platform
import socket
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from gnndist import __version__
from gnndist.crew import PORT_SOCKET
from gnndist.errors import ConfigError
from gnndist.failures import PeerLost

RETRY_S = 0.2
NAME_S = 10.0
"""how long a name may stay unknown"""
VERDICT = "verdict"

Terms = Mapping[str, Any]
"""what must be equal on every rank: what it is called → its value, as JSON takes it"""


def meet(rank: int, world: int, terms: Terms, timeout_s: float) -> Store:
    """Find the other ranks and agree with them; the store that they share.

    Raises
    ------
    ConfigError
        rank 0 cannot be reached, its port is taken, ranks are missing, or their terms differ.
    PeerLost
        rank 0 went away meanwhile.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    patience = timedelta(seconds=timeout_s)
    if rank == 0 and not launcher_serves():
        base = _served(address, port, world, patience)
    else:
        _wait_for_server(address, port, timeout_s)
        base = TCPStore(
            address, port, world, is_master=False, timeout=patience, wait_for_workers=False
        )
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"gnndist/{attempt}", base)
    store.set(_key(rank), json.dumps({"host": platform.node(), "terms": _all(terms)}))
    if rank == 0:
        verdict = _verdict(store, world, timeout_s)
        store.set(VERDICT, verdict)
    else:
        try:
            store.wait([VERDICT], 2 * patience)
        except RuntimeError as error:
            raise PeerLost(f"rank 0 has gone before all ranks had joined: {error}") from error
        verdict = store.get(VERDICT).decode()
    if verdict:
        raise ConfigError(verdict)
    return store


def launcher_serves() -> bool:
    """Whether the store of keys is served by a launcher, not by rank 0."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _served(address: str, port: int, world: int, patience: timedelta) -> TCPStore:
    """The store, served by this rank."""
    handed = os.environ.get(PORT_SOCKET)
    try:
        return TCPStore(
            address,
            port,
            world,
            is_master=True,
            timeout=patience,
            wait_for_workers=False,
            master_listen_fd=None if handed is None else int(handed),
        )
    except RuntimeError as error:
        if "EADDRINUSE" in str(error) or os.strerror(errno.EADDRINUSE).lower() in str(error):
            raise ConfigError(f"port {port} is taken: choose another MASTER_PORT") from error
        raise ConfigError(f"cannot listen at {address}:{port}: {error}") from error


def _wait_for_server(address: str, port: int, timeout_s: float) -> None:
    """Wait until rank 0 listens. torch's own attempt prints pages when it fails."""
    start = time.monotonic()
    while True:
        try:
            with socket.create_connection((address, port), timeout=5):
                return
        except socket.gaierror:
            why, patience_s = "unknown name", min(NAME_S, timeout_s)
        except TimeoutError:
            why, patience_s = "no answer", timeout_s
        except OSError as error:
            why, patience_s = (error.strerror or str(error)).lower(), timeout_s
        waited = time.monotonic() - start
        if waited > patience_s:
            raise ConfigError(
                f"cannot reach rank 0 at {address}:{port} (MASTER_ADDR:MASTER_PORT), {why}, "
                f"tried for {waited:.0f} s"
            )
        time.sleep(RETRY_S)


def _verdict(store: Store, world: int, timeout_s: float) -> str:
    """Why the ranks cannot work together; empty if they can."""
    deadline = time.monotonic() + timeout_s
    first: dict[str, Any] = {}
    for rank in range(world):
        while not store.check([_key(rank)]):
            if time.monotonic() > deadline:
                missing = [r for r in range(world) if not store.check([_key(r)])]
                return (
                    f"of {world} ranks, {_listed(missing)} have not joined within "
                    f"{timeout_s:.0f} s: they were not started, or cannot reach rank 0"
                )
            time.sleep(0.02)
        here = json.loads(store.get(_key(rank)))
        first = first or here
        if said := _difference(first, here, rank):
            return said
    return ""


def _difference(first: dict[str, Any], here: dict[str, Any], rank: int) -> str:
    """What rank 0 and another rank do not agree on."""
    names = [*first["terms"], *(n for n in here["terms"] if n not in first["terms"])]
    for name in names:
        then, now = first["terms"].get(name), here["terms"].get(name)
        if then != now:
            return (
                f"rank {rank} on {here['host']} has {name} {now}, rank 0 on {first['host']} has "
                f"{then}: all ranks need the same"
            )
    return ""


def _all(terms: Terms) -> dict[str, Any]:
    """The terms of any job besides those of this one; build tags such as +cpu may differ."""
    return {
        "gnndist": __version__,
        "torch": torch.__version__.partition("+")[0],
        "numpy": np.__version__.partition(".")[0],
        **terms,
    }


def _key(rank: int) -> str:
    return f"rank/{rank}"


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, …" if len(ranks) > 8 else shown
