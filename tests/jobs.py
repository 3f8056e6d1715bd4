"""Jobs of real ranks, forked from a warm process so that one starts in a fraction of a second.

A rank runs what `python -m gnndist ARGUMENTS` runs, in a process, session and process group of its
own, with its standard error in its log.
"""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from processes import fork_server

from gnndist.failures import LAUNCHED


class Forked:
    """A rank's process, as the supervisor sees it."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid: int = process.pid

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code


def start_forked(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Forked:
    """What `gnndist.supervisor.start_process` does, a few seconds faster."""
    process = fork_server().Process(
        target=_rank, args=(list(arguments), dict(environment), str(log), str(Path.cwd()))
    )
    process.start()
    return Forked(process)


def warm_up() -> None:
    """Return when the process that ranks are forked from has loaded everything."""
    process = fork_server().Process(target=os.getpid)
    process.start()
    process.join()


def _rank(arguments: list[str], environment: dict[str, str], log: str, folder: str) -> None:
    os.setsid()
    os.chdir(folder)
    run_here(arguments, environment | {LAUNCHED: str(os.getppid())}, Path(log))


def run_here(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    """Make this process, freshly forked, the rank that its environment says it is."""
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # read TMPDIR again
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["gnndist", *arguments]
    from gnndist.cli import main

    main()
