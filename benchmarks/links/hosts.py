"""Ranks of the benchmark on hosts that are network namespaces, or all on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from network import Network  # noqa: E402  (the tests' namespaces)

from gnndist.crew import worker_environment  # noqa: E402

PORT = 29531


class Ranks:
    """The ranks, each one process; told what to do together."""

    def __init__(self, store: Path, ranks: int, threads: int, net: Network | None) -> None:
        self._processes = []
        for rank in range(ranks):
            environment = {
                **worker_environment(ranks),
                "RANK": str(rank),
                "LOCAL_RANK": "0",
                "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": "1" if net else str(ranks),
                "MASTER_ADDR": net.addresses[0] if net else "127.0.0.1",
                "MASTER_PORT": str(PORT),
                "GLOO_SOCKET_IFNAME": "eth0" if net else "lo",
                "OMP_NUM_THREADS": str(threads),
                "TORCH_CPP_LOG_LEVEL": "ERROR",
                "PYTHONPATH": str(ROOT / "benchmarks"),
            }
            inside = ["ip", "netns", "exec", net.namespace(rank)] if net else []
            worker = [sys.executable, "-m", "links.worker", str(store.absolute()), str(threads)]
            self._processes.append(
                subprocess.Popen(
                    [*inside, *worker],
                    env=os.environ | environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        for process in self._processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise SystemExit("a rank did not start: see above")

    def run(self, **job: Any) -> list[dict[str, Any]]:
        """What each rank measured, by rank."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
        replies = []
        for process in self._processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise SystemExit("a rank has ended: see above")
            replies.append(json.loads(line))
        return replies

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None and process.stdin is not None:
                process.stdin.write('{"end": true}\n')
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def on_hosts(store: Path, ranks: int, threads: int) -> Iterator[tuple[Ranks, Network]]:
    """One rank on each of so many hosts."""
    with Network(ranks, prefix="gnnd-bench") as net:
        running = Ranks(store, ranks, threads, net)
        try:
            yield running, net
        finally:
            running.end()


@contextmanager
def on_loopback(store: Path, ranks: int, threads: int) -> Iterator[Ranks]:
    """The same ranks on one host."""
    running = Ranks(store, ranks, threads, None)
    try:
        yield running
    finally:
        running.end()
