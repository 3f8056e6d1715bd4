"""What every layer has to be: equivariant, independent of ranks, and loadable elsewhere."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layers import CASES, IN, Case, assert_same, even_runs, gathered, made, one_rank
from threads import run_threads

from gnndist.graph import Graph


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, np.ndarray]:
    """A directed graph, maybe weighted (zeros and negatives), and runs that may be empty."""
    vertices = draw(st.integers(2, 12))
    ids = st.integers(0, vertices - 1)
    edges = draw(st.lists(st.tuples(ids, ids), max_size=40, unique=True))
    edge_index = np.array(edges, np.int64).reshape(-1, 2).T
    weight = None
    if draw(st.booleans()):
        choices = st.sampled_from([0.0, 0.5, 1.0, 3.0])
        weight = np.array([draw(choices) for _ in edges], np.float32)
        # One negative weight on a vertex that can afford it.
        rich = np.flatnonzero(weight == 3.0)
        others = [k for k in range(len(edges)) if rich.size and edges[k][1] == edges[rich[0]][1]]
        for k in others[:1]:
            if k != rich[0]:
                weight[k] = -0.5
    seed = draw(st.integers(0, 2**16))
    features = np.random.default_rng(seed).standard_normal((vertices, IN)).astype(np.float32)
    graph = Graph.from_edge_index(
        edge_index, num_vertices=vertices, edge_weight=weight, features=features
    )
    cuts = draw(st.lists(st.integers(0, vertices), min_size=1, max_size=3))
    return graph, np.array([0, *sorted(cuts), vertices], np.int64)


def permuted(graph: Graph, order: np.ndarray) -> Graph:
    """The graph whose vertex order[i] is this one's vertex i."""
    destination = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    features = np.empty_like(graph.features)
    features[order] = graph.features
    return Graph.from_edge_index(
        order[np.stack([np.asarray(graph.indices, np.int64), destination])],
        num_vertices=graph.num_vertices,
        edge_weight=graph.edge_weight,
        features=features,
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@given(graphs(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=8)
def test_every_layer(case: Case, drawn: tuple[Graph, np.ndarray], random: object) -> None:
    graph, runs = drawn
    layer = made(case)
    vertices = graph.num_vertices
    alone = even_runs(vertices, 1)
    one = gathered(run_threads(one_rank, 1, layer, graph, alone, False))

    # On any number of ranks, however the vertices lie on them.
    assert_same(gathered(run_threads(one_rank, len(runs) - 1, layer, graph, runs, False)), one)

    # In any order of the vertices.
    order = np.arange(vertices)
    random.shuffle(order)
    moved = gathered(run_threads(one_rank, 1, layer, permuted(graph, order), alone, False))
    torch.testing.assert_close(moved.out[order], one.out, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_state_dict_loads_into_pyg_and_back(case: Case) -> None:
    pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    layer, other = made(case), case.make_pyg().double()
    other.load_state_dict(layer.state_dict())
    fresh = made(case, seed=1)
    fresh.load_state_dict(other.state_dict())
    for name, value in layer.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value), name


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_initialised_like_pyg(case: Case) -> None:
    """The same bounds for every parameter: what is uniform in ±b there is so here."""
    pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")

    def bounds(make: object) -> dict[str, torch.Tensor]:
        largest: dict[str, torch.Tensor] = {}
        for seed in range(60):
            torch.manual_seed(seed)
            for name, value in make().named_parameters():  # type: ignore[operator]
                seen = largest.get(name, torch.tensor(0.0))
                largest[name] = torch.maximum(seen, value.detach().abs().max())
        return largest

    ours, theirs = bounds(case.make), bounds(case.make_pyg)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert float(value) == pytest.approx(float(theirs[name]), rel=0.1, abs=1e-12), name
