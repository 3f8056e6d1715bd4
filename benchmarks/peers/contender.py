"""A contender: a child process that runs an epoch whenever it is told to."""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(32 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""the best settings found for the peers: glibc keeps its memory, torch asks for huge pages"""
NEUTRAL = ("MALLOC_", "THP_MEM_ALLOC_ENABLE", "OMP_", "MKL_", "KMP_", "GOMP_", "LD_PRELOAD")
"""settings of the caller's environment that no contender inherits"""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What to run."""

    key: str
    """name in tables and JSON, e.g. ``dgl/best``"""
    module: str
    """run as ``python -m MODULE FOLDER THREADS *arguments``"""
    arguments: tuple[str, ...] = ()
    threads: int
    """of one process"""
    processes: int = 1
    environment: tuple[tuple[str, str], ...] = ()
    python: str = sys.executable


@dataclass(eq=False)
class Contender:
    """A running entry and the figures of its epochs."""

    entry: Entry
    process: subprocess.Popen[str]
    log: Path
    versions: dict[str, str] = field(default_factory=dict)
    warmup: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None
    """why it stopped early"""

    @classmethod
    def start(cls, entry: Entry, problem: str, log: Path) -> "Contender":
        """Start the child and wait until it has loaded the problem."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(NEUTRAL)}
        threads = str(entry.threads)
        environment |= dict(entry.environment)
        environment |= {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        environment |= {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        process = subprocess.Popen(
            [entry.python, "-m", entry.module, problem, threads, *entry.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            env=environment,
            text=True,
            bufsize=1,
        )
        contender = cls(entry, process, log)
        contender.versions = (contender._line() or {}).get("versions", {})
        return contender

    def run_epoch(self, *, warmup: bool) -> None:
        """Have it run one epoch and keep the figures."""
        if self.failure is not None:
            return
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write("go\n")
        figures = self._line()
        if figures is not None:
            (self.warmup if warmup else self.epochs).append(figures)

    def stop(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(timeout=60)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()

    @property
    def median_s(self) -> float:
        """Median seconds of an epoch; NaN if it has run none."""
        seconds = [e["seconds"] for e in self.epochs]
        return statistics.median(seconds) if seconds else float("nan")

    @property
    def losses(self) -> list[float]:
        """Of all epochs, warm-up first."""
        return [e["loss"] for e in (*self.warmup, *self.epochs)]

    @property
    def peaks(self) -> list[int]:
        """Most resident bytes of each process."""
        done = self.epochs or self.warmup
        return [m["peak_rss"] for m in done[-1]["memory"]] if done else []

    def as_dict(self) -> dict[str, Any]:
        return {
            "key": self.entry.key,
            "threads": self.entry.threads,
            "processes": self.entry.processes,
            "environment": dict(self.entry.environment),
            "versions": self.versions,
            "median_s": self.median_s,
            "peak_rss": self.peaks,
            "warmup": self.warmup,
            "epochs": self.epochs,
            "failure": self.failure,
        }

    def _line(self) -> dict[str, Any] | None:
        """The child's next line; None, and `failure` set, if it has died."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = self.process.wait()
        if code == -signal.SIGKILL:
            self.failure = "killed: out of memory?"
        else:
            self.failure = f"exit code {code}: {_reason(self.log.read_text())}"
        return None


def _reason(log: str) -> str:
    """The line of a child's standard error that says why it died."""
    lines = log.strip().splitlines() or ["no message"]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit)\b", line)]
    return (errors or lines)[-1]
