"""Benchmarks that are commands of their own run, on graphs that take no time."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import network
import pytest
import torch

from gnndist.store import Store

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("products")


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


@pytest.mark.slow
def test_the_network_benchmark(tmp_path: Path) -> None:
    if reason := network.why_not():
        pytest.skip(reason)
    options = ["--graph", "synthetic:arxiv@0.01", "--rates", "1gbit", "--epochs", "1"]
    file = tmp_path / "network.json"
    done = run("network.py", *options, "--warmup", "1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert "1 Gbit/s: exposed ÷ exchange: " in done.stdout
    found: dict[str, Any] = json.loads(file.read_text())["found"]
    assert list(found) == ["loopback", "1gbit"]
    variants = found["1gbit"]
    losses = [figures["loss"] for figures in variants.values()]
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-5)
    assert variants["both"]["bytes_sent"] < variants["no savings"]["bytes_sent"]
    for figures in variants.values():
        assert figures["counted_ratio"] == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_the_gpu_check() -> None:
    if not torch.cuda.is_available():
        done = run("gpu_check.py")
        assert done.returncode == 2
        assert "this machine has none that torch can use: nothing was checked" in done.stdout
        some = ["--device", "cpu", "--parts", "kernels,exactness"]
        small = ["--graph", "synthetic:arxiv@0.01", "--small", "synthetic:arxiv@0.005"]
        done = run("gpu_check.py", *some, *small)
    else:
        done = run("gpu_check.py", "--epochs", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all agree" in done.stdout


@pytest.mark.slow
def test_the_benchmark_of_a_large_graph(tmp_path: Path) -> None:
    file = tmp_path / "products.json"
    options = ["--scale", "0.001", "--methods", "natural,file", "--epochs", "2"]
    done = run("products.py", *options, "--folder", str(tmp_path), "--json", str(file))
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    steps: dict[str, Any] = found["steps"]
    assert list(steps) == ["natural", "input", "file", "train"]
    for name, step in steps.items():
        assert step["missed"] == [], (name, step["log"])
        peak = step["peak"]
        assert 0 < peak["beyond_files"] <= peak["together"]
        assert peak["largest"] > 1e7
        assert name == "train" or peak["together"] < 1.5 * peak["largest"]
    assert steps["train"]["peak"]["together"] > steps["train"]["peak"]["largest"]  # two ranks
    training: dict[str, Any] = found["training"]
    assert training["epochs"] == len(training["epochs_s"]) == 2
    lines = done.stdout.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + len(steps)
    assert {line.count("|") for line in table} == {7}
    assert lines[-1] == "All targets are met."
    stores = [Store.open(tmp_path / f"store-{name}") for name in ("natural", "file")]
    assert stores[0].num_edges == stores[1].num_edges


def test_a_command_that_dies_is_shown_with_the_reason(products: Any, tmp_path: Path) -> None:
    wanted = products.Target(seconds=900)
    fails = [sys.executable, "-c", "import sys; print('so it goes'); sys.exit('no memory')"]
    assert wanted.missed(products.watched(fails, tmp_path / "log")) == ["exit code 1: no memory"]
    dies = [sys.executable, "-c", "import os; print('half', flush=True); os.kill(os.getpid(), 9)"]
    assert products.watched(dies, tmp_path / "log").failed == "killed by signal 9: half"


def test_memory_is_that_of_all_processes(products: Any, tmp_path: Path) -> None:
    child = "import time; held = bytearray(64 << 20); time.sleep(3)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    done = products.watched([sys.executable, "-c", parent], tmp_path / "log")
    assert done.failed is None
    assert done.peak.beyond_files > 64 << 20
    assert done.peak.together >= done.peak.beyond_files
    assert done.peak.largest > 64 << 20
    missed = products.Target(together=64 << 20, beyond_files=1 << 30).missed(done)
    assert len(missed) == 1
    assert missed[0].endswith("together, wanted 0.0625 GiB")
