"""Runs of cells: balanced, never empty, cut high in the recursion."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnndist.errors import ConfigError
from gnndist.plan.runs import cut_levels, cut_runs

sizes = st.lists(st.integers(1, 6), min_size=1, max_size=9)


def worst(offsets: np.ndarray, work: np.ndarray, cuts: np.ndarray) -> float:
    total = np.concatenate([[0], np.cumsum(work)])
    return float(np.diff(total[np.searchsorted(offsets, cuts)]).max())


@settings(deadline=None, max_examples=80)
@given(sizes, st.data())
def test_runs_cover_all_vertices_and_none_is_empty(cells: list[int], data: st.DataObject) -> None:
    offsets = np.concatenate([[0], np.cumsum(cells)])
    work = np.array(
        data.draw(st.lists(st.integers(0, 50), min_size=len(cells), max_size=len(cells)))
    )
    ranks = data.draw(st.integers(1, int(offsets[-1])))
    cuts = cut_runs(offsets, work, ranks)
    assert cuts.dtype == np.int64
    assert cuts[0] == 0
    assert cuts[-1] == offsets[-1]
    assert len(cuts) == ranks + 1
    assert (np.diff(cuts) > 0).all()
    if ranks <= len(cells):
        assert np.isin(cuts, offsets).all()


@settings(deadline=None, max_examples=60)
@given(sizes, st.data())
def test_the_maximum_is_the_smallest_possible(cells: list[int], data: st.DataObject) -> None:
    offsets = np.concatenate([[0], np.cumsum(cells)])
    work = np.array(
        data.draw(st.lists(st.integers(1, 50), min_size=len(cells), max_size=len(cells)))
    )
    ranks = data.draw(st.integers(1, len(cells)))
    inner = itertools.combinations(offsets[1:-1], ranks - 1)
    best = min(worst(offsets, work, np.array([0, *cut, offsets[-1]])) for cut in inner)
    assert worst(offsets, work, cut_runs(offsets, work, ranks, imbalance=0.0)) == best


def test_a_small_imbalance_buys_a_cut_between_the_halves() -> None:
    offsets = np.arange(9) * 10
    work = np.array([100, 100, 100, 102, 99, 98, 100, 100])
    assert cut_runs(offsets, work, 2).tolist() == [0, 40, 80]
    assert cut_runs(offsets, work, 4).tolist() == [0, 20, 40, 60, 80]


def test_levels_follow_the_bisection() -> None:
    assert cut_levels(8).tolist() == [0, 3, 2, 3, 1, 3, 2, 3, 0]
    assert cut_levels(3).tolist() == [0, 1, 2, 0]
    assert cut_levels(1).tolist() == [0, 0]


def test_an_empty_cell_makes_no_empty_run() -> None:
    assert cut_runs([0, 2, 2, 4], [1, 0, 1], 3).tolist() == [0, 1, 3, 4]


def test_more_ranks_than_cells_cut_by_vertex() -> None:
    assert cut_runs([0, 8], [1], 4).tolist() == [0, 2, 4, 6, 8]
    assert cut_runs([0, 3, 4], [0, 5], 4).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("ranks", [0, -1, 5])
def test_ranks_out_of_range(ranks: int) -> None:
    with pytest.raises(ConfigError, match=f"{ranks} ranks: allowed are 1 to 4"):
        cut_runs([0, 4], [1], ranks)
