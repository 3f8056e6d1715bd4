"""Measured rates: plausible, kept, and no trouble where they cannot be kept."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import awkward

from gnndist.inspection import rates as module
from gnndist.inspection.edge_kernels import UNKNOWN, relative_cost
from gnndist.inspection.locality import Locality, pieces_of_store
from gnndist.inspection.rates import Rates
from gnndist.store import write_store


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Measurements that take no time, and a cache of their own."""
    monkeypatch.setattr(module, "SECONDS", 0.0)
    monkeypatch.setattr(module, "REPEATS", 1)
    monkeypatch.setattr(module, "ROWS", 64)
    monkeypatch.setattr(module, "STREAMS", (1 << 18, 1 << 20))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_figure_is_measured_once_a_machine(tmp_path: Path) -> None:
    first = Rates.of_this_machine()
    seconds = first.product(32, 16, inner=False, dtype=torch.float32)
    assert 0 < seconds < 1e-3
    kept = next((tmp_path / "cache" / "gnndist").glob("rates-*.json"))
    assert list(json.loads(kept.read_text()).values()) == [seconds]
    again = Rates.of_this_machine()
    assert again.product(32, 16, inner=False, dtype=torch.float32) == seconds
    assert Rates.of_this_machine(again=True).values == {}


def test_different_work_is_measured_apart() -> None:
    rates = Rates(cores=1)
    rates.product(8, 8, inner=False, dtype=torch.float32)
    rates.product(8, 8, inner=True, dtype=torch.float32)
    rates.product(8, 8, inner=True, dtype=torch.float64)
    assert len(rates.values) == 3


def test_a_spoilt_cache_is_measured_anew(tmp_path: Path) -> None:
    rates = Rates.of_this_machine()
    rates.get("x", lambda: 1.0)
    assert rates.path is not None
    rates.path.write_text("{")
    assert Rates.of_this_machine().get("x", lambda: 2.0) == 2.0


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    rates = Rates(path=tmp_path / "file" / "rates.json")
    assert rates.get("x", lambda: 3.0) == 3.0
    assert rates.get("x", lambda: 4.0) == 3.0


def test_streams_are_interpolated_between_sizes() -> None:
    rates = Rates(values={f"stream {1 << 18} fused": 1.0, f"stream {1 << 20} fused": 3.0})
    found = rates.stream(np.array([1.0, 2.0**18, 2.0**19, 2.0**20, 2.0**30]), fused=True)
    assert found.tolist() == pytest.approx([1.0, 1.0, 2.0, 3.0, 3.0])


def test_the_store_itself_is_measured(tmp_path: Path) -> None:
    store = write_store(awkward(vertices=200), tmp_path / "store", cells=4)
    rates = Rates(cores=1)
    (piece,) = pieces_of_store(store)
    locality = Locality([piece], rates)
    (seconds,) = locality.entry(16, np.array([100.0]))
    assert 0 < seconds < 1e-3
    keys = [key for key in rates.values if key.startswith("sparse")]
    assert keys == [f"sparse {piece.key} 16"]


@pytest.mark.parametrize(
    "kernel",
    ["gat_loops._forward", "gat_loops._backward", "gatv2_loops._forward",
     "gatv2_loops._backward_sources", "segment._maximum", "segment._share"],
)  # fmt: skip
def test_edge_kernels_cost_more_than_a_product(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnndist.inspection.edge_kernels.ROWS", 2000)
    assert 0.2 < relative_cost(Rates(cores=1), kernel, 2, 8) < 200


def test_products_and_unknown_kernels_are_not_measured() -> None:
    rates = Rates(cores=1)
    assert relative_cost(rates, "spmm._rows", 1, 8) == 1.0
    assert relative_cost(rates, "other._kernel", 1, 8) == UNKNOWN
    assert rates.values == {}
