"""Synthetic graphs: counts, shape, and that there is something to learn on them."""

import numpy as np
import pymetis
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gnndist.data.synthetic import RECIPES, generate
from gnndist.data.synthetic_edges import nested_edges
from gnndist.errors import DataError
from gnndist.graph import Graph, is_symmetric


def halo_ratio(graph: Graph, parts: int) -> float:
    """Pairs of a part and a remote vertex that it reads, over vertices; METIS asked directly."""
    adjacency = pymetis.CSRAdjacency(adj_starts=graph.indptr, adjacent=graph.indices)
    _, assignment = pymetis.part_graph(parts, adjacency=adjacency, options=pymetis.Options(seed=0))
    part = np.asarray(assignment, dtype=np.int64)
    reader = np.repeat(part, np.diff(graph.indptr))
    cut = reader != part[graph.indices]
    n = graph.num_vertices
    return len(np.unique(reader[cut] * n + graph.indices[cut])) / n


def assert_well_formed(graph: Graph) -> None:
    degree = np.diff(graph.indptr)
    rows = np.repeat(np.arange(graph.num_vertices), degree)
    assert graph.indptr[0] == 0
    assert degree.min() >= 1
    assert graph.indices.dtype == np.int32
    assert not (rows == graph.indices).any()
    ascending = np.diff(graph.indices) > 0
    ascending[graph.indptr[1:-1] - 1] = True
    assert ascending.all()
    assert is_symmetric(graph.indptr, graph.indices, None)


@pytest.mark.parametrize(
    ("name", "scale"), [("arxiv", 0.03), ("products", 0.002), ("reddit", 0.01)]
)
def test_counts_are_the_recipes_times_scale(name: str, scale: float) -> None:
    recipe = RECIPES[name]
    graph = generate(name, scale=scale)
    n = round(recipe.vertices * scale)
    assert graph.num_vertices == n
    # reddit has 492 neighbours a vertex: a hundredth of its vertices has no room for them.
    assert graph.num_edges == 2 * min(round(recipe.edges * scale), n * n // 32)
    assert graph.features is not None
    assert graph.labels is not None
    assert graph.features.shape == (n, recipe.features)
    assert graph.features.dtype == np.float32
    assert graph.features.std() == pytest.approx(1, abs=0.1)
    assert graph.labels.shape == (n,)
    assert 0 <= graph.labels.min() <= graph.labels.max() < graph.num_classes == recipe.classes
    assert_well_formed(graph)
    sizes = [len(graph.splits[k]) for k in ("train", "valid", "test")]
    assert np.array_equal(np.sort(np.concatenate(list(graph.splits.values()))), np.arange(n))
    np.testing.assert_allclose(np.array(sizes) / n, recipe.split, atol=2 / n)


@pytest.mark.parametrize(
    ("name", "vertices", "million_edges"),
    [("arxiv", 169_343, 1.17), ("products", 2_449_029, 61.86), ("reddit", 232_965, 57.31)],
)
def test_full_size_is_that_of_the_real_graph(
    name: str, vertices: int, million_edges: float
) -> None:
    assert RECIPES[name].vertices == vertices
    assert RECIPES[name].edges / 1e6 == pytest.approx(million_edges, abs=0.005)


@settings(deadline=None, max_examples=25)
@given(
    name=st.sampled_from(sorted(RECIPES)),
    vertices=st.integers(64, 400),
    seed=st.integers(0, 2**31),
)
def test_tiny_graphs_are_well_formed(name: str, vertices: int, seed: int) -> None:
    graph = generate(name, scale=vertices / RECIPES[name].vertices, seed=seed)
    assert graph.num_vertices == vertices
    assert_well_formed(graph)


@settings(deadline=None, max_examples=25)
@given(n=st.integers(8, 60), spare=st.integers(0, 4), levels=st.integers(1, 2), key=st.integers(0))
def test_edges_are_exactly_as_many_as_asked(n: int, spare: int, levels: int, key: int) -> None:
    edges = n + spare
    indptr, indices = nested_edges(
        np.ones(n),
        np.arange(n, dtype=np.int32),
        edges=edges,
        cuts=np.full(levels, 0.1),
        key=key % 2**64,
    )
    graph = Graph(indptr=indptr, indices=indices)
    assert graph.num_edges == 2 * edges
    assert_well_formed(graph)


def test_same_seed_same_graph_and_another_seed_another() -> None:
    first, again, other = (generate("arxiv", scale=0.01, seed=s) for s in (3, 3, 4))
    for field in ("indptr", "indices", "features", "labels"):
        assert np.array_equal(getattr(first, field), getattr(again, field)), field
        assert not np.array_equal(getattr(first, field), getattr(other, field)), field
    for split in first.splits:
        assert np.array_equal(first.splits[split], again.splits[split])
        assert not np.array_equal(first.splits[split], other.splits[split])


def test_degrees_have_a_power_law_tail() -> None:
    degree = np.diff(generate("arxiv", scale=0.2).indptr)
    assert np.median(degree) < 0.75 * degree.mean()
    assert degree.max() > 40 * degree.mean()
    # A straight line on log-log axes: the tail's slope is the same two decades on.
    at = np.array([20, 60, 180])
    above = np.array([(degree > d).mean() for d in at])
    slopes = np.diff(np.log(above)) / np.diff(np.log(at))
    assert (slopes < -0.8).all()
    assert (slopes > -3).all()


def test_ids_give_no_locality_away() -> None:
    graph = generate("arxiv", scale=0.05)
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    distance = np.abs(rows - graph.indices).mean() / graph.num_vertices
    assert distance == pytest.approx(1 / 3, abs=0.02)  # that of random pairs


def test_neighbours_share_labels_more_than_chance_but_not_always() -> None:
    graph = generate("arxiv", scale=0.1)
    assert graph.labels is not None
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    same = (graph.labels[rows] == graph.labels[graph.indices]).mean()
    share = np.bincount(graph.labels, minlength=40) / graph.num_vertices
    assert 5 * (share**2).sum() < same < 0.9


def test_averaging_over_neighbours_tells_classes_apart_better_than_own_features() -> None:
    graph = generate("arxiv", scale=0.1)
    n, labels, own = graph.num_vertices, graph.labels, graph.features
    assert labels is not None
    assert own is not None
    adjacency = sp.csr_array(
        (np.ones(graph.num_edges, np.float32), graph.indices, graph.indptr), shape=(n, n)
    )
    mean = (adjacency @ own + own) / (np.diff(graph.indptr)[:, None] + 1)

    def nearest_centre_accuracy(x: np.ndarray) -> float:
        train, test = graph.splits["train"], graph.splits["test"]
        centres = np.stack([x[train][labels[train] == c].mean(axis=0) for c in range(40)])
        nearest = (x[test] @ centres.T - (centres**2).sum(axis=1) / 2).argmax(axis=1)
        return float((nearest == labels[test]).mean())

    alone, with_neighbours = nearest_centre_accuracy(own), nearest_centre_accuracy(mean)
    assert 0.1 < alone < with_neighbours - 0.15
    assert with_neighbours < 0.9


@pytest.mark.slow
def test_halo_at_full_size_is_about_that_of_ogbn_arxiv() -> None:
    graph = generate("arxiv")
    ratios = [halo_ratio(graph, parts) for parts in (2, 4, 16)]
    np.testing.assert_allclose(ratios, [0.16, 0.44, 1.2], rtol=0.15)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(DataError, match=r"'arxive': allowed are arxiv, products, reddit"):
        generate("arxive")
    with pytest.raises(DataError, match=r"scale 0: allowed|scale 0 gives 0 vertices"):
        generate("arxiv", scale=0)
    with pytest.raises(DataError, match=r"scale nan gives nan vertices"):
        generate("arxiv", scale=float("nan"))
    with pytest.raises(DataError, match="seed -1: allowed"):
        generate("arxiv", scale=0.01, seed=-1)
