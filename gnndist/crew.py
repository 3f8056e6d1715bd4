"""Starting the processes of a job's ranks, and what their supervisor needs of each.

A `Crew` starts all ranks of a job, once. `LocalCrew` starts them on this machine;
`gnndist.hosts.HostsCrew` on several.
"""

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil

from gnndist.failures import BOARD, LAUNCHED
from gnndist.network import INTERFACE

PORT_SOCKET = "GNNDIST_PORT_SOCKET"
"""environment variable: rank 0's file descriptor of the socket at which all ranks meet"""


class Worker(Protocol):
    """A rank's process."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""


Start = Callable[[Sequence[str], Mapping[str, str], Path], Worker]
"""(arguments, environment, log file) → a rank's process, leader of a process group of its own"""


def start_process(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Worker:
    """`python -m gnndist ARGUMENTS`; only rank 0 speaks, what the others print goes to the log."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "gnndist", *arguments],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=None if environment["RANK"] == "0" else file,
            stderr=file,
            start_new_session=True,
            pass_fds=[int(environment[PORT_SOCKET])] if PORT_SOCKET in environment else [],
        )


class RankProcess(Protocol):
    """A rank as its supervisor sees it, wherever it runs."""

    host: str

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""

    def signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""

    def end(self) -> None:
        """Kill it and whatever it started."""

    def is_suspended(self) -> bool:
        """Whether it has been stopped by SIGSTOP."""


class Crew(Protocol):
    """Who starts the ranks of a job."""

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, logs: Path
    ) -> Sequence[RankProcess]:
        """Start every rank; by rank.

        Parameters
        ----------
        arguments:
            of `python -m gnndist`.
        environment:
            of every rank, besides what tells it its place.
        folder:
            where the board lies and the ranks leave their notes.
        logs:
            where rank N writes rank-N.log.
        """

    def expects_news(self) -> bool:
        """Whether something may have happened to a rank that is not known yet."""

    def close(self) -> None:
        """Let go of everything; the ranks have ended."""


class LocalRank:
    """A rank on this machine."""

    def __init__(self, process: Worker) -> None:
        self.host = platform.node()
        self._process = process

    def poll(self) -> int | None:
        return self._process.poll()

    def signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self._process.pid, number)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def is_suspended(self) -> bool:
        try:
            return bool(psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED)
        except psutil.Error:
            return False


class LocalCrew:
    """All ranks on this machine."""

    def __init__(self, ranks: int, start: Start = start_process) -> None:
        self._ranks = ranks
        self._start = start
        self._store: object = None

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, logs: Path
    ) -> list[RankProcess]:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        # The ranks meet at a store in this process, on a port that is free for certain.
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._store = store
        shared = {
            **environment,
            **launched_by_this(folder),
            "WORLD_SIZE": str(self._ranks),
            "LOCAL_WORLD_SIZE": str(self._ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        started: list[RankProcess] = []
        try:
            for rank in range(self._ranks):
                place = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                log = logs / f"rank-{rank}.log"
                started.append(LocalRank(self._start(arguments, shared | place, log)))
        except BaseException:
            for process in started:
                process.end()
            raise
        return started

    def expects_news(self) -> bool:
        return False

    def close(self) -> None:
        self._store = None


def launched_by_this(folder: Path) -> dict[str, str]:
    """Tells ranks that this process has started them, and where its board lies."""
    return {LAUNCHED: str(os.getpid()), BOARD: str(folder)}


def worker_environment(ranks: int) -> dict[str, str]:
    """What ranks of this machine find in their environment besides their place in the job."""
    environment = {
        "OMP_NUM_THREADS": str(threads_for(ranks)),
        "THP_MEM_ALLOC_ENABLE": "1",
        **os.environ,
    }
    # gloo otherwise asks for the address of the host's name, which not every machine knows.
    if Path("/sys/class/net/lo").exists():
        environment.setdefault(INTERFACE, "lo")
    return environment


def threads_for(ranks: int) -> int:
    """This machine's cores shared out over its ranks."""
    return max(1, len(os.sched_getaffinity(0)) // ranks)
