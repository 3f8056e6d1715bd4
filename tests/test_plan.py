"""Plans are pure data: L, S and R of all ranks multiply back to the adjacency."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import maximum_bipartite_matching

from gnndist.plan import Matrix, RankPlan, RankRows, build_all
from gnndist.plan.cover import minimum_vertex_cover


@st.composite
def bipartite(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, int]:
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    pairs = draw(
        st.lists(
            st.tuples(st.integers(0, rows - 1), st.integers(0, columns - 1)),
            unique=True,
            max_size=40,
        )
    )
    edges = np.array(pairs, np.int64).reshape(-1, 2)
    return edges[:, 0], edges[:, 1], rows, columns


@settings(max_examples=150, deadline=None)
@given(bipartite())
def test_cover_covers_and_is_as_small_as_the_matching(
    graph: tuple[np.ndarray, np.ndarray, int, int],
) -> None:
    row, column, rows, columns = graph
    cover = minimum_vertex_cover(row, column, rows, columns)
    assert (cover.rows[row] | cover.columns[column]).all()
    pattern = sp.csr_array((np.ones(len(row)), (row, column)), shape=(rows, columns))
    matched = (maximum_bipartite_matching(pattern, perm_type="column") >= 0).sum()
    assert cover.rows.sum() + cover.columns.sum() == matched


@st.composite
def cut_graph(draw: st.DrawFn) -> tuple[np.ndarray, list[int]]:
    n = draw(st.integers(1, 14))
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    dense = rng.uniform(1, 2, (n, n)) * (rng.random((n, n)) < draw(st.sampled_from([0.1, 0.4])))
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=5)))
    return dense, [0, *cuts, n]


def parts_of(dense: np.ndarray, runs: list[int]) -> list[RankRows]:
    parts = []
    for rank in range(len(runs) - 1):
        mine = dense[runs[rank] : runs[rank + 1]]
        row, column = mine.nonzero()
        parts.append(
            RankRows(
                rank=rank,
                runs=np.array(runs, np.int64),
                rows=np.arange(runs[rank], runs[rank + 1]),
                adjacency=Matrix.from_entries(row, column, mine[row, column], mine.shape),
            )
        )
    return parts


def multiplied_back(plans: list[RankPlan], n: int) -> np.ndarray:
    """Σ over ranks of L + R · exchange · S, as one dense matrix."""
    total = np.zeros((n, n))
    sent: dict[tuple[int, int], np.ndarray] = {}
    for plan in plans:
        rows = np.zeros((plan.send.num_rows, n))
        rows[:, plan.columns] = plan.send.to_scipy().toarray()
        for peer, block in enumerate(np.split(rows, np.cumsum(plan.send_counts)[:-1])):
            sent[plan.rank, peer] = block
    for plan in plans:
        received = np.concatenate([sent[peer, plan.rank] for peer in range(len(plans))])
        assert [len(sent[p, plan.rank]) for p in range(len(plans))] == list(plan.receive_counts)
        block = np.zeros((len(plan.rows), n))
        block[:, plan.columns] = plan.local.to_scipy().toarray()
        total[plan.rows] += block + plan.receive.to_scipy().toarray() @ received
    return total


@settings(max_examples=150, deadline=None)
@given(cut_graph(), st.booleans())
def test_the_matrices_multiply_back(graph: tuple[np.ndarray, list[int]], cover: bool) -> None:
    dense, runs = graph
    plans = build_all(parts_of(dense, runs), cover=cover)
    np.testing.assert_allclose(multiplied_back(plans, len(dense)), dense, rtol=1e-14)


@settings(max_examples=80, deadline=None)
@given(cut_graph(), st.randoms(use_true_random=False))
def test_active_rows_read_only_what_they_need(
    graph: tuple[np.ndarray, list[int]], random: object
) -> None:
    dense, runs = graph
    n = len(dense)
    active = np.array([i for i in range(n) if random.random() < 0.4], np.int64)  # type: ignore[attr-defined]
    parts = [
        part.restricted(active[(active >= part.start) & (active < part.stop)])
        for part in parts_of(dense, runs)
    ]
    plans = build_all(parts, cover=True, all_columns=False)
    wanted = np.zeros_like(dense)
    wanted[active] = dense[active]
    np.testing.assert_allclose(multiplied_back(plans, n), wanted, rtol=1e-14)
    read = np.unique(np.concatenate([plan.columns for plan in plans]))
    needed = np.union1d(active, wanted.any(axis=0).nonzero()[0])
    assert np.array_equal(read, needed)
    for plan in plans:
        assert np.array_equal(plan.columns[plan.row_at], plan.rows)


def test_cover_sends_fewer_messages_than_plain_rows() -> None:
    hub = np.zeros((20, 20))
    hub[0, 10:] = 1  # one row reads ten remote vertices: their sum is one message
    hub[1:10, 10] = 1  # one remote vertex is read by nine rows: sent once as it is
    for cover, messages in ((False, 10), (True, 2)):
        plans = build_all(parts_of(hub, [0, 10, 20]), cover=cover)
        assert plans[0].receive_counts.tolist() == [0, messages]
        assert plans[1].send_counts.tolist() == [messages, 0]
        assert (plans[0].halo is None) is cover


def test_halo_size_is_what_plain_rows_bring() -> None:
    rng = np.random.default_rng(1)
    parts = parts_of(rng.random((30, 30)) * (rng.random((30, 30)) < 0.2), [0, 9, 9, 22, 30])
    plans = build_all(parts, cover=False)
    assert [part.halo_size() for part in parts] == [p.receive_counts.sum() for p in plans]


@pytest.mark.parametrize("cover", [True, False])
def test_no_edges(cover: bool) -> None:
    plans = build_all(parts_of(np.zeros((6, 6)), [0, 3, 6]), cover=cover)
    assert all(plan.send.num_rows == 0 and plan.receive.nnz == 0 for plan in plans)
