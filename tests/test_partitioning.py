"""Cells: a bijection, balanced, repeatable, with far less halo than chance."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnndist import ConfigError, DataError, Graph
from gnndist.partitioning import Cells, balanced_metis, default_cells, partition
from gnndist.partitioning import metis as metis_module
from gnndist.partitioning.pattern import undirected


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    n = draw(st.integers(1, 30))
    edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=90))
    return Graph.from_edge_index(
        np.array(edges, np.int64).reshape(-1, 2).T, num_vertices=n, symmetrize=draw(st.booleans())
    )


def grid(side: int) -> Graph:
    """A square grid, ids shuffled."""
    ids = np.random.default_rng(77).permutation(side * side).reshape(side, side)
    right = np.stack([ids[:, :-1].ravel(), ids[:, 1:].ravel()])
    down = np.stack([ids[:-1].ravel(), ids[1:].ravel()])
    return Graph.from_edge_index(np.concatenate([right, down], axis=1), symmetrize=True)


def cut_edges(graph: Graph, cells: Cells) -> int:
    cell_of = np.empty(graph.num_vertices, np.int64)
    cell_of[cells.order] = np.repeat(np.arange(cells.count), np.diff(cells.offsets))
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return int((cell_of[rows] != cell_of[graph.indices]).sum())


@pytest.mark.parametrize("method", ["metis", "ldg", "random", "natural"])
@settings(deadline=None, max_examples=40)
@given(graph=graphs(), data=st.data())
def test_order_is_a_bijection_and_cells_are_consecutive(
    method: str, graph: Graph, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, graph.num_vertices))
    cells = partition(graph, cells=count, method=method, seed=3)
    assert np.array_equal(np.sort(cells.order), np.arange(graph.num_vertices))
    assert np.array_equal(cells.global_ids()[cells.order], np.arange(graph.num_vertices))
    assert cells.offsets[0] == 0
    assert cells.offsets[-1] == graph.num_vertices
    assert (np.diff(cells.offsets) > 0).all()
    assert cells.count <= count
    for start, end in zip(cells.offsets[:-1], cells.offsets[1:], strict=True):
        assert (np.diff(cells.order[start:end]) > 0).all()
    again = partition(graph, cells=count, method=method, seed=3)
    assert np.array_equal(again.order, cells.order)


@settings(deadline=None, max_examples=40)
@given(graph=graphs())
def test_undirected_pattern_against_dense(graph: Graph) -> None:
    n = graph.num_vertices
    dense = np.zeros((n, n), bool)
    dense[np.repeat(np.arange(n), np.diff(graph.indptr)), graph.indices] = True
    expected = (dense | dense.T) & ~np.eye(n, dtype=bool)
    indptr, indices = undirected(graph)
    rows = np.repeat(np.arange(n), np.diff(indptr))
    assert np.array_equal(np.stack([rows, indices]), np.stack(np.nonzero(expected)))


def test_metis_cuts_a_grid_well_and_evenly() -> None:
    graph = grid(32)
    cells = partition(graph, cells=16)
    weight = (np.diff(graph.indptr) + 1)[cells.order]
    work = np.add.reduceat(weight, cells.offsets[:-1])
    assert cells.count == 16
    assert work.max() / work.mean() < 1.06
    # 16 squares of 8 × 8 cut 192 undirected edges; chance would cut 1860.
    assert cut_edges(graph, cells) < 2 * 260
    assert cut_edges(graph, partition(graph, cells=16, method="random")) > 2 * 1700


def test_every_grouping_of_consecutive_cells_is_good() -> None:
    graph = grid(32)
    cells = partition(graph, cells=64)
    half = Cells(
        order=cells.order, offsets=cells.offsets[[0, 32, 64]], method="", seed=0, vertex_work=1
    )
    assert cut_edges(graph, half) < 2 * 45  # a straight cut of a 32 × 32 grid is 32


def clustered_training() -> Graph:
    """A grid whose training vertices all lie in its left half."""
    side = 32
    graph = grid(side)
    ids = np.random.default_rng(77).permutation(side * side).reshape(side, side)
    return graph.with_(splits={"train": ids[:, : side // 2].ravel()})


def train_imbalance(graph: Graph, cells: Cells, parts: int) -> float:
    train = np.isin(cells.order, graph.splits["train"])
    starts = cells.offsets[np.arange(parts) * cells.count // parts]
    counts = np.add.reduceat(train, starts, dtype=np.int64)
    return float(counts.max() / counts.mean())


def test_training_vertices_are_balanced_where_work_alone_does_not() -> None:
    graph = clustered_training()
    assert train_imbalance(graph, partition(graph.with_(splits={}), cells=16), 2) > 1.5
    balanced = partition(graph, cells=16)
    assert train_imbalance(graph, balanced, 2) < 1.3
    assert train_imbalance(graph, balanced, 8) < 1.6
    work = np.add.reduceat((np.diff(graph.indptr) + 1)[balanced.order], balanced.offsets[:-1])
    assert work.max() / work.mean() < 1.15


def test_without_reach_of_the_second_constraint_work_is_balanced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(balanced_metis, "_reach_metis", lambda seed: None)
    graph = clustered_training()
    alone = partition(graph.with_(splits={}), cells=16)
    assert np.array_equal(partition(graph, cells=16).order, alone.order)


def test_large_graphs_go_through_a_process_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = grid(12)
    inline = partition(graph, cells=8, seed=5)
    monkeypatch.setattr(metis_module, "INLINE", 0)
    stages: list[tuple[str, int, int]] = []
    child = partition(graph, cells=8, seed=5, progress=lambda *step: stages.append(step))
    assert np.array_equal(child.order, inline.order)
    assert stages[-1] == ("metis: 8 cells", 1000, 1000)


def test_seeds_differ() -> None:
    graph = grid(20)
    first, second = (partition(graph, cells=8, method="random", seed=s).order for s in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("vertices", "cells"), [(1, 1), (127, 1), (128, 2), (1797, 16), (2708, 32), (117_659, 256)]
)
def test_default_cells(vertices: int, cells: int) -> None:
    assert default_cells(vertices) == cells


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cells": 5}, "5 cells: allowed are 1 to 4"),
        ({"cells": 0}, "0 cells: allowed are 1 to 4"),
        ({"method": "magic"}, "method 'magic': allowed are metis"),
        ({"seed": -1}, "seed -1"),
        ({"vertex_work": -1}, "vertex work -1: allowed is 0 or more"),
    ],
)
def test_bad_options(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        partition(grid(2), **options)  # type: ignore[arg-type]


def test_an_empty_graph_is_refused() -> None:
    empty = Graph.from_edge_index(np.empty((2, 0), np.int64), num_vertices=0)
    with pytest.raises(DataError, match="no vertices"):
        partition(empty)


@pytest.mark.parametrize("name", ["wordnet30", "coauthor_phy"])
def test_real_graphs_stay_close_to_metis_asked_directly(data_dir: Path, name: str) -> None:
    pymetis = pytest.importorskip("pymetis")
    graph = read_npz(data_dir / "npz" / f"{name}.npz")
    cells = partition(graph)
    indptr, indices = undirected(graph)
    degree = np.diff(graph.indptr)
    from gnndist.plan.runs import cut_runs

    work = np.add.reduceat((degree + 1)[cells.order], cells.offsets[:-1])
    adjacency = pymetis.CSRAdjacency(indptr, indices.astype(np.int64))
    for ranks in (4, 16):
        _, direct = pymetis.part_graph(ranks, adjacency=adjacency, vweights=degree + 1)
        cuts = cut_runs(cells.offsets, work, ranks)
        ours = np.empty(graph.num_vertices, np.int64)
        ours[cells.order] = np.repeat(np.arange(ranks), np.diff(cuts))
        edges = np.bincount(ours, degree)
        assert edges.max() / edges.mean() <= 1.05
        assert halo(graph, ours) <= 1.05 * halo(graph, np.asarray(direct))


def halo(graph: Graph, rank: np.ndarray) -> int:
    rows = np.repeat(rank, np.diff(graph.indptr))
    far = rows != rank[graph.indices]
    return len(np.unique(rows[far] * graph.num_vertices + graph.indices[far]))


def read_npz(path: Path) -> Graph:
    """Edges only, without the readers above this floor."""
    with np.load(path, allow_pickle=False) as file:
        if "edge_index" in file:
            count = len(file["node_label"])
            return Graph.from_edge_index(
                file["edge_index"].astype(np.int64), num_vertices=count, symmetrize=True
            )
        shape, indptr, indices = (file[f"adj_{k}"] for k in ("shape", "indptr", "indices"))
        rows = np.repeat(np.arange(shape[0]), np.diff(indptr))
        return Graph.from_edge_index(
            np.stack([indices, rows]).astype(np.int64), num_vertices=int(shape[0]), symmetrize=True
        )
