"""The benchmarks of networks and GPUs run, on graphs that take no time."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import network
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]


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
