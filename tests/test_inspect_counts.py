"""Counts taken while streaming a store are those of the plans themselves."""

from pathlib import Path

import numpy as np
import pytest
from graphs import awkward
from hypothesis import given, settings
from hypothesis import strategies as st

from gnndist.graph import Graph
from gnndist.inspection.chunks import active_rows
from gnndist.inspection.counts import ViewCounts, count_views
from gnndist.plan import RankPlan, build_all
from gnndist.store import write_store
from gnndist.training.shard import load_rows, runs_of


def check(counts: ViewCounts, plain: list[RankPlan], cover: list[RankPlan]) -> None:
    """Every number against the plans of all ranks."""

    def of(plans: list[RankPlan], figure: str) -> list[int]:
        return [getattr(plan, figure).nnz for plan in plans]

    assert counts.rows.tolist() == [len(plan.rows) for plan in plain]
    assert counts.columns.tolist() == [len(plan.columns) for plan in plain]
    assert counts.local_edges.tolist() == of(plain, "local")
    assert counts.cut_edges.tolist() == of(plain, "receive")
    assert counts.senders.tolist() == [len(np.unique(p.send.indices)) for p in plain]
    assert counts.receivers.tolist() == [np.count_nonzero(np.diff(p.receive.indptr)) for p in plain]
    loops = [int((p.local.indices == p.row_at[p.local.row_of_entry()]).sum()) for p in plain]
    assert counts.unlooped.tolist() == [len(p.rows) - n for p, n in zip(plain, loops, strict=True)]
    for found, plans in ((counts.plain, plain), (counts.cover, cover)):
        assert found.pairs.tolist() == [plan.send_counts.tolist() for plan in plans]
        assert found.received.tolist() == [plan.receive_counts.sum() for plan in plans]
        assert found.sent.tolist() == [plan.send_counts.sum() for plan in plans]
        assert found.send_entries.tolist() == of(plans, "send")
        assert found.receive_entries.tolist() == of(plans, "receive")
        assert found.total == sum(int(plan.send_counts.sum()) for plan in plans)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 13])
@pytest.mark.parametrize("directed", [False, True], ids=["symmetric", "directed"])
@pytest.mark.parametrize("chunk", [7, 1 << 22], ids=["small chunks", "one chunk"])
def test_equals_the_plans(
    tmp_path: Path, ranks: int, directed: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnndist.inspection.chunks.CHUNK_EDGES", chunk)
    monkeypatch.setattr("gnndist.inspection.chunks.NEARLY_ALL", 1.1)  # no rounding to all
    store = write_store(awkward(directed=directed), tmp_path / "store", cells=8)
    runs = runs_of(store, ranks)
    active = active_rows(store, 2)
    views = [(None, None), (active[1], active[0]), (active[2], active[1])]
    parts = [load_rows(store, runs, rank) for rank in range(ranks)]
    for (rows, _), counts in zip(views, count_views(store, runs, views), strict=True):
        view = parts
        if rows is not None:
            ids = [part.rows[rows[part.start : part.stop]] for part in parts]
            view = [part.restricted(wanted) for part, wanted in zip(parts, ids, strict=True)]
        plain, cover = (build_all(view, cover=c, all_columns=rows is None) for c in (False, True))
        check(counts, plain, cover)


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    vertices=st.integers(2, 30),
    edges=st.integers(0, 120),
    cuts=st.lists(st.integers(0, 30), max_size=4),
)
def test_equals_the_plans_on_any_graph(
    tmp_path_factory: pytest.TempPathFactory, seed: int, vertices: int, edges: int, cuts: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    graph = Graph.from_edge_index(
        rng.integers(0, vertices, (2, edges)), num_vertices=vertices, symmetrize=False
    )
    store = write_store(graph, tmp_path_factory.mktemp("any") / "store", method="natural")
    runs = np.sort(np.array([0, *(min(c, vertices) for c in cuts), vertices], np.int64))
    parts = [load_rows(store, runs, rank) for rank in range(len(runs) - 1)]
    (counts,) = count_views(store, runs, [(None, None)])
    check(counts, build_all(parts, cover=False), build_all(parts, cover=True))


def test_active_rows_are_the_neighbourhoods_of_the_training_vertices(tmp_path: Path) -> None:
    # A path 0 → 1 → … → 9 whose last vertex alone trains.
    graph = Graph.from_edge_index(
        np.stack([np.arange(9), np.arange(1, 10)]),
        num_vertices=10,
        symmetrize=False,
        labels=np.zeros(10, np.int64),
        num_classes=2,
        splits={"train": np.array([9])},
    )
    store = write_store(graph, tmp_path / "store", method="natural")
    masks = active_rows(store, 3)
    original = store.original_ids(0, 10)
    assert [sorted(original[mask]) for mask in masks] == [[6, 7, 8, 9], [7, 8, 9], [8, 9], [9]]
