"""A contender's side of the line protocol.

The parent starts a contender and reads JSON lines from its standard output: first one with its
versions, when it has loaded everything; then, for every line ``go`` on its standard input, one
with an epoch's seconds, loss and memory. End of input means the end.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO


def claim_stdout() -> TextIO:
    """Standard output for the protocol alone: what libraries print goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return channel


def memory() -> dict[str, int]:
    """Bytes resident in this process: now, and at most so far."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss": pages * os.sysconf("SC_PAGESIZE"),
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def serve(
    channel: TextIO,
    versions: dict[str, str],
    epoch: Callable[[int], float],
    *,
    ready: Callable[[], None] = lambda: None,
    report: Callable[[], dict[str, Any]] = lambda: {"memory": [memory()]},
) -> None:
    """Answer the parent until it closes standard input.

    Parameters
    ----------
    epoch:
        runs one epoch of that number (from 1): forward, backward, step; returns its loss.
    ready:
        called before an epoch's clock starts: a barrier.
    report:
        figures of an epoch besides seconds and loss, taken after the clock stopped: ``memory``,
        one entry a process, and others.
    """
    print(json.dumps({"versions": versions}), file=channel)
    for number, line in enumerate(sys.stdin, start=1):
        if line.strip() != "go":
            raise SystemExit(f"unknown command {line!r}: allowed is go")
        ready()
        start = time.perf_counter()
        loss = epoch(number)
        seconds = time.perf_counter() - start
        figures = {"epoch": number, "seconds": seconds, "loss": loss, **report()}
        print(json.dumps(figures), file=channel)
