"""The adjacency built on disk equals the one built in memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnndist.data import disk_csr as module
from gnndist.data.disk_csr import disk_csr
from gnndist.data.scratch import Spool
from gnndist.errors import DataError
from gnndist.graph import Graph


@settings(max_examples=60, deadline=None)
@given(
    vertices=st.integers(1, 40),
    count=st.integers(0, 300),
    seed=st.integers(0, 99),
    symmetrize=st.booleans(),
    mirrored=st.booleans(),
)
def test_same_as_in_memory(vertices, count, seed, symmetrize, mirrored):
    edges = np.random.default_rng(seed).integers(0, vertices, (2, count)).astype(np.int32)
    if mirrored:
        edges = np.concatenate([edges, edges[::-1]], axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", 37)
        patch.setattr(module, "BUCKET", 23)
        found = disk_csr(edges, vertices, symmetrize=symmetrize)
    expected = Graph.from_edge_index(edges, num_vertices=vertices, symmetrize=symmetrize)
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)
    assert found.indices.dtype == expected.indices.dtype
    assert found.symmetric == expected.symmetric
    assert found.counts == expected.edge_counts
    assert found.indptr[-1] == (found.counts.read - found.counts.duplicates + found.counts.reversed)


@pytest.mark.parametrize("bad", [(0, 9), (-1, 0), (9, 9)])
def test_ids_outside_are_named_with_their_place(bad, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 4)
    edges = np.zeros((2, 10), np.int64)
    edges[:, 6] = bad
    with pytest.raises(DataError, match=f"edge 6 joins vertex {bad[0]} to {bad[1]}: .* 0 to 8"):
        disk_csr(edges, 9, symmetrize=True)


def test_a_spool_gives_back_what_it_was_given(monkeypatch, tmp_path):
    rows = np.random.default_rng(7).standard_normal((50, 3)).astype(np.float32)
    for limit, kind in ((1 << 20, np.ndarray), (64, np.memmap)):
        monkeypatch.setattr("gnndist.data.scratch.IN_MEMORY", limit)
        spool = Spool(np.float32, tmp_path)
        for a in range(0, 50, 7):
            spool.append(rows[a : a + 7])
        found = spool.array()
        assert type(found) is kind
        assert np.array_equal(found, rows)
    assert not list(tmp_path.iterdir())
    assert Spool(np.int32).array().shape == (0,)
    with pytest.raises(DataError, match="cannot hold scratch files"):
        monkeypatch.setattr("gnndist.data.scratch.IN_MEMORY", 1)
        Spool(np.int8, tmp_path / "missing").append(rows[:, 0])
