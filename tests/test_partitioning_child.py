"""Libraries in a process of their own: interrupted, killed, failing, out of memory."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gnndist import ConfigError, Graph
from gnndist.errors import GnndistError
from gnndist.partitioning import METHODS, child, memory, partition
from gnndist.partitioning.problem import silent

LIBRARY = """
import os, signal, time
from pathlib import Path

def child_main(folder, cells, seed):
    here = Path(__file__).parent
    (here / "pid").write_text(str(os.getpid()))
    if seed == 1:
        time.sleep(600)
    if seed == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 3:
        raise MemoryError("no more")
    return [seed, cells]
"""

WAITING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from gnndist.partitioning import child
from gnndist.partitioning.problem import silent
child.run("library", lambda folder: None, what="x", cells=1, seed=1, seconds=1, report=silent)
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a library that a child finds; temporary files go beside it."""
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def run(seed: int) -> np.ndarray:
    return child.run(
        "library",
        lambda folder: None,
        what="library: 7 cells",
        cells=7,
        seed=seed,
        seconds=1,
        report=silent,
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def wait_for(condition: object, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_answer_comes_back(library: Path) -> None:
    assert run(0).tolist() == [0, 7]
    assert list((library / "temporary").iterdir()) == []


@pytest.mark.parametrize(("seed", "said"), [(2, "killed by signal 9.*memory"), (3, "no more")])
def test_a_child_that_dies_is_explained(library: Path, seed: int, said: str) -> None:
    with pytest.raises(GnndistError, match=f"library: 7 cells failed: .*{said}.*ldg"):
        run(seed)
    assert list((library / "temporary").iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_child_ends_with_its_parent(library: Path, how: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", WAITING], stderr=subprocess.DEVNULL)
    wait_for((library / "pid").exists)
    wait_for(lambda: (library / "pid").read_text() != "")
    pid = int((library / "pid").read_text())
    assert alive(pid)
    parent.send_signal(how)
    assert parent.wait(60) != 0
    wait_for(lambda: not alive(pid))
    if how == signal.SIGINT:
        assert list((library / "temporary").iterdir()) == []


def test_a_method_that_does_not_fit_is_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = Graph.from_edge_index(np.random.default_rng(0).integers(0, 99, (2, 9999)))
    monkeypatch.setattr(memory, "available_memory", lambda: 300_000)
    with pytest.raises(
        ConfigError, match=r"metis.*needs about .* available: try --method kaminpar"
    ):
        partition(graph)
    assert partition(graph, method="natural").count == 1


def test_available_memory_knows_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    free = memory.available_memory()
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 300\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_memory() > free // 2
    (tmp_path / "memory.max").write_text("1000\n")
    assert memory.available_memory() == 400


@pytest.mark.parametrize("method", sorted(METHODS))
def test_methods_estimate_more_for_more(method: str) -> None:
    small = METHODS[method]().estimate(1_000, 10_000, 8)
    large = METHODS[method]().estimate(1_000_000, 10_000_000, 256)
    assert 0 < small.memory < large.memory
    assert 0 < small.seconds < large.seconds
