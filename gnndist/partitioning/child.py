"""Run a partitioning library in a process of its own.

Such libraries hold the interpreter's lock for minutes, cannot be interrupted, and end the process
when memory runs out. In a child none of that reaches the user: an interrupt kills it at once, its
end by the system's memory killer becomes a message, and its memory is given back.
"""

import ctypes
import importlib
import json
import math
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnndist.errors import ConfigError, GnndistError
from gnndist.partitioning.problem import Report

POLL_S = 0.2


def run(
    module: str,
    write: Callable[[Path], None],
    *,
    what: str,
    cells: int,
    seed: int,
    seconds: float,
    report: Report,
    scratch: Path | None = None,
) -> NDArray[np.int64]:
    """The cell of each vertex, from a library run in a child process.

    Parameters
    ----------
    module:
        whose ``child_main(folder, cells, seed)`` reads what `write` wrote and returns the cells.
    write:
        writes the library's input into a folder.
    what:
        what is going on, for the user.
    cells, seed:
        as in `Problem`.
    seconds:
        how long it may take, for the progress bar.
    report:
        told of progress.
    scratch:
        as in `Problem`.

    Raises
    ------
    GnndistError
        the child died; says how, and what to try.
    """
    if scratch is not None and not scratch.is_dir():
        raise ConfigError(f"scratch folder {scratch}: no such directory")
    with tempfile.TemporaryDirectory(prefix="gnndist-partition-", dir=scratch) as name:
        folder = Path(name)
        report(what, 0, 1000)
        write(folder)
        call = {"module": module, "cells": cells, "seed": seed}
        (folder / "call.json").write_text(json.dumps(call))
        _wait(folder, what, seconds, report)
        return np.load(folder / "cell.npy")  # type: ignore[no-any-return]


def _wait(folder: Path, what: str, seconds: float, report: Report) -> None:
    """Start the child, report the time it takes, and say what happened if it dies."""
    command = [sys.executable, "-m", "gnndist.partitioning.child", str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            start = time.monotonic()
            while process.poll() is None:
                time.sleep(POLL_S)
                # Nobody knows how far it has come: time against the estimate, never quite done.
                spent = (time.monotonic() - start) / max(seconds, POLL_S)
                report(what, int(1000 * (1 - math.exp(-2 * spent))), 1000)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    if process.returncode == 0:
        report(what, 1000, 1000)
        return
    lines = (folder / "log").read_text(errors="replace").strip().splitlines()
    said = lines[-1] if lines else "it said nothing"
    if process.returncode < 0:
        said = f"killed by signal {-process.returncode}, most likely for want of memory ({said})"
    raise GnndistError(
        f"{what} failed: {said}; --method kaminpar needs less memory than metis, ldg least"
    )


def main(folder: Path) -> None:
    """In the child: read the call, run the library, save the answer."""
    _die_with_parent()
    call = json.loads((folder / "call.json").read_text())
    module = importlib.import_module(call["module"])
    np.save(folder / "cell.npy", module.child_main(folder, call["cells"], call["seed"]))


def _die_with_parent() -> None:
    """Ask the system to end this process when the one that waits for it is gone (Linux)."""
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
