"""Every reader on the real graphs, where they are."""

import numpy as np
import pytest

from gnndist.data import load
from gnndist.graph import EdgeCounts


def sizes(graph):
    return {name: len(ids) for name, ids in graph.splits.items()}


def test_cora(data_dir):
    graph = load("cora", root=data_dir)
    assert (graph.num_vertices, graph.num_edges, graph.symmetric) == (2708, 2 * 5278, True)
    assert graph.edge_counts == EdgeCounts(read=10858, duplicates=302)
    assert (graph.num_features, graph.num_classes) == (1433, 7)
    assert sizes(graph) == {"train": 140, "valid": 500, "test": 1000}
    assert graph.splits["test"].min() == 1708
    assert np.bincount(graph.labels).tolist() == [351, 217, 418, 818, 426, 298, 180]
    assert np.bincount(graph.labels[graph.splits["train"]]).tolist() == [20] * 7
    assert graph.features.dtype == np.float32
    assert np.allclose(graph.features.sum(axis=1), 1)


def test_cora_features_as_they_are(data_dir):
    graph = load("cora", root=data_dir / "planetoid", normalize_features=False)
    assert graph.features.dtype == np.float16
    assert np.unique(graph.features).tolist() == [0, 1]
    assert int(graph.features.sum(dtype=np.float64)) == 49216


def test_cora_neighbours_share_a_class_far_more_than_by_chance(data_dir):
    graph = load("cora", root=data_dir)  # so test rows lie where their edges are
    reader = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    same = graph.labels[reader] == graph.labels[graph.indices]
    assert same.mean() > 0.8


def test_pubmed(data_dir):
    graph = load("PubMed", root=data_dir)
    assert (graph.num_vertices, graph.num_edges) == (19717, 2 * 44324 + 3)
    assert graph.edge_counts.self_loops == 3
    assert (graph.num_features, graph.num_classes) == (500, 3)
    assert sizes(graph) == {"train": 60, "valid": 500, "test": 1000}


def test_wordnet(data_dir):
    graph = load(data_dir / "npz" / "wordnet30.npz")
    assert (graph.num_vertices, graph.num_edges) == (117659, 2 * 183789 + 9)
    assert graph.features.shape == (117659, 128)
    assert graph.features.dtype == np.float16
    assert graph.num_classes == 45
    assert sizes(graph) == {"train": 70595, "valid": 23532, "test": 23532}
    assert int((np.diff(graph.indptr) == 0).sum()) == 1009


def test_wordnet_directed(data_dir):
    graph = load(data_dir / "npz" / "wordnet30.npz", symmetrize=False)
    assert not graph.symmetric
    assert graph.edge_counts.read == 377592
    assert graph.num_edges == 377592 - graph.edge_counts.duplicates


def test_coauthor(data_dir):
    graph = load("coauthor_phy", root=data_dir)
    assert (graph.num_vertices, graph.num_edges) == (34493, 2 * 247962)
    assert graph.features.shape == (34493, 8415)
    assert graph.features.dtype == np.float16
    assert int(np.count_nonzero(graph.features)) == 1137311
    assert sizes(graph) == {"train": 100, "valid": 150, "test": 34243}
    assert np.bincount(graph.labels[graph.splits["train"]]).tolist() == [20] * 5


def test_amazon(data_dir):
    graph = load("amazon-photo", root=data_dir, split_seed=7)
    assert (graph.num_vertices, graph.num_edges) == (7650, 2 * 119081 + 1)
    assert graph.edge_counts == EdgeCounts(read=143663, self_loops=1, reversed=94500)
    assert sizes(graph) == {"train": 160, "valid": 240, "test": 7250}
    other = load("amazon-photo", root=data_dir, split_seed=8)
    assert not np.array_equal(other.splits["train"], graph.splits["train"])


def test_metis_mesh(data_dir):
    graph = load(data_dir / "metis" / "mdual.graph.gz")
    assert (graph.num_vertices, graph.num_edges, graph.name) == (258569, 2 * 513132, "mdual")
    assert graph.indices[: graph.indptr[1]].tolist() == [60364, 83817, 217957, 237972]
    assert graph.labels is None
    assert not graph.splits


@pytest.mark.parametrize("symmetrize", [True, False])
def test_digits(symmetrize):
    graph = load("digits", symmetrize=symmetrize)
    assert (graph.num_vertices, graph.num_features, graph.num_classes) == (1797, 64, 10)
    assert graph.symmetric == symmetrize
    assert graph.edge_counts.read == 17970
    assert graph.edge_counts.self_loops == 0
    assert sizes(graph) == {"train": 1078, "valid": 359, "test": 360}
    assert (graph.features.min(), graph.features.max()) == (0, 1)
    if not symmetrize:
        assert (np.diff(graph.indptr) == 10).all()
