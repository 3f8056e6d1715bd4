"""ldg and kaminpar: graphs too large for METIS, tried on small ones."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnndist import Graph
from gnndist.partitioning import ldg, partition, pattern, streaming
from gnndist.partitioning.kaminpar import write_parhip
from gnndist.partitioning.pattern import Pattern, row_chunks


def communities(groups: int = 8, size: int = 60, seed: int = 0) -> Graph:
    """Dense groups, few edges between them, ids shuffled."""
    rng = np.random.default_rng(seed)
    n = groups * size
    group = rng.permutation(np.repeat(np.arange(groups), size))
    source = rng.integers(0, n, 40 * n)
    target = rng.integers(0, n, 40 * n)
    kept = (group[source] == group[target]) | (rng.random(40 * n) < 0.01)
    return Graph.from_edge_index(
        np.stack([source[kept], target[kept]]), num_vertices=n, symmetrize=True
    )


def cut_fraction(graph: Graph, order: np.ndarray, offsets: np.ndarray) -> float:
    cell = np.empty(graph.num_vertices, np.int64)
    cell[order] = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    rows = np.repeat(cell, np.diff(graph.indptr))
    return float((rows != cell[graph.indices]).mean())


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(1, 12))
def test_chunks_of_rows_cover_all_rows(degrees: list[int], edges: int) -> None:
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    chunks = list(row_chunks(indptr, edges))
    assert [row for a, b in chunks for row in range(a, b)] == list(range(len(degrees)))
    assert all(indptr[b] - indptr[a] <= edges or b == a + 1 for a, b in chunks)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    original = row_chunks
    for module in (pattern, ldg):
        monkeypatch.setattr(module, "row_chunks", lambda indptr: original(indptr, 50))


def test_clusters_respect_their_limit_and_follow_edges() -> None:
    graph = communities()
    n = graph.num_vertices
    weight = np.random.default_rng(0).integers(1, 4, n)
    label, load = np.arange(n, dtype=np.int32), weight.copy()
    count, touched = np.zeros(n, np.int32), np.empty(n, np.int32)
    limit = 60
    moved = [
        streaming.cluster_rows(
            0, n, graph.indptr, graph.indices, weight, label, load, limit, count, touched
        )
        for _ in range(4)
    ]
    assert moved[0] > n // 2
    assert moved[-1] < moved[0]
    assert np.array_equal(load, np.bincount(label, weight, n))
    assert load.max() <= limit
    assert not count.any()
    rows = np.repeat(label, np.diff(graph.indptr))
    assert (rows == label[graph.indices]).mean() > 0.15  # by chance: 0.03


def test_refinement_keeps_its_books_and_cuts_fewer_edges() -> None:
    graph = communities()
    n, cells = graph.num_vertices, 8
    rng = np.random.default_rng(1)
    weight, train = rng.integers(1, 4, n), rng.integers(0, 2, n)
    cell = rng.integers(0, cells, n)
    load = np.bincount(cell, weight, cells).astype(np.int64)
    train_load = np.bincount(cell, train, cells).astype(np.int64)
    limit, train_limit = int(1.2 * load.max()), int(1.2 * train_load.max())
    count, touched = np.zeros(cells, np.int64), np.empty(cells, np.int64)

    def between() -> int:
        return streaming.count_between(0, n, graph.indptr, graph.indices, cell)

    before = between()
    rows = np.repeat(cell, np.diff(graph.indptr))
    assert before == int((rows != cell[graph.indices]).sum())
    for _ in range(4):
        streaming.refine_rows(
            0,
            n,
            graph.indptr,
            graph.indices,
            weight,
            train,
            cell,
            load,
            train_load,
            limit,
            train_limit,
            count,
            touched,
        )
    assert between() < 0.5 * before
    assert np.array_equal(load, np.bincount(cell, weight, cells))
    assert np.array_equal(train_load, np.bincount(cell, train, cells))
    assert load.max() <= limit
    assert train_load.max() <= train_limit


def test_the_sample_of_edges_between_clusters() -> None:
    graph = communities()
    n = graph.num_vertices
    label = np.random.default_rng(0).integers(0, 9, n).astype(np.int32)
    out = np.empty(graph.num_edges, np.int64)

    def sample(every: int) -> np.ndarray:
        found = streaming.sample_between(0, n, graph.indptr, graph.indices, label, 9, every, out)
        return out[:found].copy()

    rows = np.repeat(label, np.diff(graph.indptr))
    columns = label[graph.indices]
    keys = (rows.astype(np.int64) * 9 + columns)[rows != columns]
    assert np.array_equal(sample(1), keys)
    assert 0.2 < len(sample(4)) / len(keys) < 0.3
    # By chunks the same entries are taken as at once.
    middle = n // 3
    at = graph.indptr[middle]
    parts = []
    for start, stop, columns in ((0, middle, graph.indices[:at]), (middle, n, graph.indices[at:])):
        found = streaming.sample_between(start, stop, graph.indptr, columns, label, 9, 4, out)
        parts.append(out[:found].copy())
    assert np.array_equal(np.concatenate(parts), sample(4))


def test_ldg_finds_communities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ldg, "CLUSTERS", 64)  # clusters of a few vertices, so that it refines
    graph = communities()
    cells = partition(graph, cells=8, method="ldg")
    chance = partition(graph, cells=8, method="random")
    assert cut_fraction(graph, cells.order, cells.offsets) < 0.2
    assert cut_fraction(graph, chance.order, chance.offsets) > 0.8
    work = np.add.reduceat((np.diff(graph.indptr) + 1)[cells.order], cells.offsets[:-1])
    assert work.max() / work.mean() < 1.15


def test_ldg_does_not_depend_on_chunks_or_where_the_graph_lies(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    graph = communities()
    whole = partition(graph, cells=16, method="ldg", seed=3)
    request.getfixturevalue("small_chunks")
    np.save(tmp_path / "indices.npy", graph.indices)
    mapped = graph.with_(indices=np.load(tmp_path / "indices.npy", mmap_mode="r"))
    pieces = partition(mapped, cells=16, method="ldg", seed=3)
    assert np.array_equal(whole.order, pieces.order)
    assert np.array_equal(whole.offsets, pieces.offsets)


def test_ldg_takes_a_sample_when_clusters_have_too_many_edges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = communities()
    monkeypatch.setattr(ldg, "SAMPLE", graph.num_edges // 5)
    cells = partition(graph, cells=8, method="ldg")
    assert cut_fraction(graph, cells.order, cells.offsets) < 0.3


def test_packing_keeps_heavy_clusters_apart() -> None:
    label = np.array([0, 0, 0, 3, 4, 5, 5, 7, 8, 9])
    weight = np.array([5, 5, 5, 1, 1, 6, 6, 1, 1, 1])
    packed = ldg._packed(label, weight, limit=3, most=4)
    assert len(np.unique(packed)) <= 4
    assert len(set(packed[:3])) == 1
    assert packed[5] == packed[6]
    assert packed[0] not in packed[3:]
    assert packed[5] not in np.delete(packed, [5, 6])
    untouched = ldg._packed(label, weight, limit=3, most=99)
    assert untouched.tolist() == [0, 0, 0, 1, 2, 3, 3, 4, 5, 6]


@pytest.mark.usefixtures("small_chunks")
def test_a_directed_graph_with_loops_in_parhip_format(tmp_path: Path) -> None:
    graph = Graph.from_edge_index(np.array([[0, 1, 2, 2, 3], [1, 2, 2, 0, 0]]), num_vertices=5)
    weight = np.array([3, 4, 5, 6, 7])
    write_parhip(tmp_path / "g", Pattern(graph), weight)
    raw = (tmp_path / "g").read_bytes()
    version, n, entries = np.frombuffer(raw, np.uint64, 3)
    assert (version, n, entries) == (0b1001, 5, 8)
    starts = np.frombuffer(raw, np.uint64, 6, offset=24)
    columns = np.frombuffer(raw, np.uint32, 8, offset=72)
    assert (starts - 72).tolist() == [0, 12, 20, 28, 32, 32]
    assert columns.tolist() == [1, 2, 3, 0, 2, 0, 1, 0]
    assert np.frombuffer(raw, np.int64, 5, offset=104).tolist() == weight.tolist()


def test_kaminpar_cuts_well_and_the_same_way_twice() -> None:
    pytest.importorskip("kaminpar")
    graph = communities()
    cells = partition(graph, cells=8, method="kaminpar", seed=1)
    assert cells.count == 8
    assert cut_fraction(graph, cells.order, cells.offsets) < 0.2
    again = partition(graph, cells=8, method="kaminpar", seed=1)
    assert np.array_equal(cells.order, again.order)


def test_kaminpar_reads_what_was_written(tmp_path: Path) -> None:
    kaminpar = pytest.importorskip("kaminpar")
    graph = communities()
    weight = np.arange(1, graph.num_vertices + 1)
    write_parhip(tmp_path / "g", Pattern(graph), weight)
    read = kaminpar.load_graph(str(tmp_path / "g"), kaminpar.GraphFileFormat.PARHIP)
    plain = Pattern(graph)
    assert (read.n(), read.m()) == (graph.num_vertices, plain.num_entries)
    indptr, indices = plain.arrays()
    for vertex in (0, 17, graph.num_vertices - 1):
        neighbours = [v for v, _ in read.neighbors(vertex)]
        assert neighbours == indices[indptr[vertex] : indptr[vertex + 1]].tolist()
        assert read.node_weight(vertex) == vertex + 1
