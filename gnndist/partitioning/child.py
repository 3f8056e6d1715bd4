"""Run a partitioning library in a process of its own.

Such libraries hold the interpreter's lock for minutes, cannot be interrupted, and end the process
when memory runs out. In a child none of that reaches the user: an interrupt kills it at once, its
end by the system's memory killer becomes a message, and its memory is given back.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnndist.errors import GnndistError
from gnndist.partitioning.problem import Estimate, Problem

POLL_S = 0.2


def run(
    method: str,
    arrays: Mapping[str, NDArray[np.int64]],
    problem: Problem,
    estimate: Callable[[int, int, int], Estimate],
) -> NDArray[np.int64]:
    """The cell of each vertex, from `method`'s library run in a child process.

    Raises
    ------
    GnndistError
        the child died; says how, and what to try.
    """
    with tempfile.TemporaryDirectory(prefix="gnndist-partition-") as name:
        folder = Path(name)
        for key, array in arrays.items():
            np.save(folder / f"{key}.npy", array.astype(np.int64, copy=False))
        call = {"method": method, "cells": problem.cells, "seed": problem.seed}
        (folder / "call.json").write_text(json.dumps(call))
        expected = estimate(len(problem.weight), problem.graph.num_edges, problem.cells).seconds
        _wait(folder, method, problem, expected)
        return np.load(folder / "cell.npy")  # type: ignore[no-any-return]


def _wait(folder: Path, method: str, problem: Problem, expected: float) -> None:
    """Start the child, report the time it takes, and say what happened if it dies."""
    command = [sys.executable, "-m", "gnndist.partitioning.child", str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            start = time.monotonic()
            while process.poll() is None:
                time.sleep(POLL_S)
                spent = time.monotonic() - start
                # Nobody knows how far METIS has come: time against the estimate, never quite done.
                share = min(spent / max(expected, POLL_S), 0.99)
                problem.report(f"{method}: {problem.cells} cells", int(1000 * share), 1000)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    if process.returncode == 0:
        problem.report(f"{method}: {problem.cells} cells", 1000, 1000)
        return
    lines = (folder / "log").read_text(errors="replace").strip().splitlines()
    said = lines[-1] if lines else "it said nothing"
    if process.returncode < 0:
        said = f"killed by signal {-process.returncode}, most likely for want of memory ({said})"
    raise GnndistError(
        f"--method {method} failed on {len(problem.weight):,} vertices and "
        f"{problem.graph.num_edges:,} edges: {said}; --method kaminpar needs less memory, "
        "--method ldg least"
    )


def main(folder: Path) -> None:
    """In the child: read the call, run the library, save the answer."""
    call = json.loads((folder / "call.json").read_text())
    if call["method"] != "metis":
        raise GnndistError(f"method {call['method']!r}: no such child")
    from gnndist.partitioning.metis import metis

    arrays = {file.stem: np.load(file) for file in folder.glob("*.npy")}
    np.save(folder / "cell.npy", metis(arrays, call["cells"], call["seed"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
