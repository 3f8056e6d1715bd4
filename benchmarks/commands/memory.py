"""The memory of a command and everything it starts, sampled a few times a second (Linux)."""

import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

EVERY_S = 0.25


@dataclass(kw_only=True)
class Peak:
    """The most that was seen at any one time; bytes."""

    together: int = 0
    """all processes, a page that several share counted once (the sum of Pss)"""
    beyond_files: int = 0
    """of that, what is not a page of a file: those are given back when memory is short"""
    largest: int = 0
    """resident in the process that has most (Rss)"""

    def add(self, processes: list[dict[str, int]]) -> None:
        """One sample: by process, its Pss, what of it is of no file, and its Rss."""
        self.together = max(self.together, sum(p["Pss"] for p in processes))
        beyond = sum(p["Pss_Anon"] + p["Pss_Shmem"] for p in processes)
        self.beyond_files = max(self.beyond_files, beyond)
        self.largest = max([self.largest, *(p["Rss"] for p in processes)])


@dataclass(kw_only=True)
class Finished:
    """A command that has ended."""

    command: list[str]
    seconds: float
    peak: Peak
    failed: str | None
    """why, in one line"""
    log: list[str] = field(repr=False)
    """the lines it wrote"""


def watched(command: list[str], log: Path) -> Finished:
    """Run a command to its end, its output going to `log`, and sample its memory meanwhile."""
    peak, stop = Peak(), threading.Event()
    start = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        watcher = threading.Thread(target=_watch, args=(process.pid, peak, stop))
        watcher.start()
        try:
            code = process.wait()
        finally:
            stop.set()
            watcher.join()
            if process.poll() is None:
                process.terminate()
    lines = log.read_text(errors="replace").splitlines()
    return Finished(
        command=command,
        seconds=time.monotonic() - start,
        peak=peak,
        failed=_reason(code, lines),
        log=lines,
    )


def _watch(pid: int, peak: Peak, stop: threading.Event) -> None:
    while not stop.wait(EVERY_S):
        try:
            root = psutil.Process(pid)
            family = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        peak.add([found for process in family if (found := _rollup(process.pid))])


def _rollup(pid: int) -> dict[str, int] | None:
    """Bytes by name in a process's smaps_rollup; None where it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return None
    words: Any = (line.split() for line in lines)
    return {name.rstrip(":"): int(kilobytes) * 1024 for name, kilobytes, _ in words} or None


def _reason(code: int, lines: list[str]) -> str | None:
    if code == 0:
        return None
    said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}: {said}"
