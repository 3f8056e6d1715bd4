"""Names, options, splits, and the one place that checks a graph."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from gnndist.data import datasets, load, validate
from gnndist.data.splits import SplitScheme, make_split, random_split
from gnndist.errors import ConfigError, DataError
from gnndist.graph import Graph


def small(n=200, classes=4, **changes):
    rng = np.random.default_rng(6)
    labels = rng.integers(-1, classes, n)
    edges = rng.integers(0, n, (2, 3 * n))
    graph = Graph.from_edge_index(
        edges,
        num_vertices=n,
        features=rng.standard_normal((n, 3)).astype(np.float32),
        labels=labels,
        num_classes=classes,
        splits={"train": np.flatnonzero(labels >= 0)},
    )
    return graph.with_(**changes)


def test_the_registry_says_what_each_is():
    known = datasets()
    assert {"digits", "cora", "ogbn-arxiv", "ogbn-papers100M", "synthetic:arxiv"} <= set(known)
    for name, dataset in known.items():
        assert name == dataset.name
        for text in (dataset.about, dataset.size, dataset.origin, dataset.licence):
            assert text
    with pytest.raises(FrozenInstanceError):
        known["cora"].name = "x"


def test_an_unknown_name_lists_the_known_ones_and_the_nearest(tmp_path):
    with pytest.raises(DataError, match=r"'coraa': .*did you mean 'cora'.*known are digits, cora"):
        load("coraa")
    with pytest.raises(DataError, match=r"did you mean 'ogbn-arxiv'"):
        load("ogbn_arxive")
    with pytest.raises(DataError, match=r"did you mean 'synthetic:products'"):
        load("synthetic:product")
    with pytest.raises(DataError, match=r"none.npz: no file here"):
        load(tmp_path / "none.npz")
    (tmp_path / "x.pt").write_bytes(b"")
    with pytest.raises(DataError, match=r"x.pt: its name ends in '.pt': allowed are .npz"):
        load(tmp_path / "x.pt")
    with pytest.raises(DataError, match=r"x.npz: not a numpy archive|no numpy archive"):
        (tmp_path / "x.npz").mkdir()
        load(tmp_path / "x.npz")


def test_options_with_no_use_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    for options, said in (
        ({"split": "thirds"}, "split 'thirds': allowed are 'random' and 'per-class:N'"),
        ({"split": "per-class:0"}, "per-class:0"),
        ({"split_seed": -1}, "split seed -1"),
        ({"features": tmp_path / "x.npy"}, "digits has features and labels of its own"),
    ):
        with pytest.raises(ConfigError, match=said):
            load("digits", **options)
    with pytest.raises(ConfigError, match="scale is allowed on synthetic"):
        load("digits@0.1")
    with pytest.raises(ConfigError, match="scale 'x' of synthetic:arxiv"):
        load("synthetic:arxiv@x")
    with pytest.raises(ConfigError, match="undirected"):
        load("synthetic:arxiv@0.01", symmetrize=False)
    with pytest.raises(DataError, match=r"y.npy: no labels here"):
        load(tmp_path / "x.npy", labels=tmp_path / "y.npy")


def test_synthetic_by_name_and_scale():
    graph = load("synthetic:arxiv@0.01", seed=3)
    assert 1000 < graph.num_vertices < 3000
    assert graph.symmetric
    assert set(graph.splits) == {"train", "valid", "test"}


def test_a_split_of_the_data_s_own_is_replaced_on_demand_only(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(
        path,
        edge_index=np.zeros((2, 1), int),
        node_label=np.arange(100) % 4,
        train=np.arange(4),
        valid=np.arange(4, 8),
        test=np.arange(8, 12),
    )
    assert len(load(path).splits["train"]) == 4
    with pytest.raises(ConfigError, match="split seed 1: a has a split of its own"):
        load(path, split_seed=1)
    assert len(load(path, split="random", split_seed=1).splits["train"]) == 60
    assert len(load(path, split="per-class:5").splits["train"]) == 20


def test_random_split_is_a_function_of_the_seed_alone():
    graph = small()
    first = make_split(graph, SplitScheme(), 0)
    again = make_split(small(), SplitScheme(), 0)
    other = make_split(graph, SplitScheme(), 1)
    labelled = np.flatnonzero(graph.labels >= 0)
    count = len(labelled)
    assert [len(ids) for ids in first.values()] == [
        3 * count // 5,
        4 * count // 5 - 3 * count // 5,
        count - 4 * count // 5,
    ]
    assert np.array_equal(np.sort(np.concatenate(list(first.values()))), labelled)
    for name, ids in first.items():
        assert np.array_equal(ids, again[name])
        assert not np.array_equal(ids, other[name])


def test_random_split_never_changes():
    """A result is worth what its split is: the same on any machine, with any numpy."""
    splits = random_split(np.arange(10), seed=0)
    assert {k: v.tolist() for k, v in splits.items()} == {
        "train": [0, 1, 2, 5, 8, 9],
        "valid": [3, 4],
        "test": [6, 7],
    }


def test_per_class_split():
    graph = small(n=400)
    splits = make_split(graph, SplitScheme.parse("per-class:20"), 0)
    counts = np.bincount(graph.labels[graph.labels >= 0])
    assert np.bincount(graph.labels[splits["train"]]).tolist() == [20] * 4
    assert np.bincount(graph.labels[splits["valid"]]).tolist() == [30] * 4
    assert np.bincount(graph.labels[splits["test"]]).tolist() == (counts - 50).tolist()


def test_per_class_split_of_small_classes():
    labels = np.array([0] * 3 + [1] * 40 + [2] * 100)
    graph = small(n=143).with_(labels=labels, num_classes=3)
    splits = make_split(graph, SplitScheme(per_class=20), 0)
    assert np.bincount(labels[splits["train"]]).tolist() == [3, 20, 20]
    assert np.bincount(labels[splits["valid"]], minlength=3).tolist() == [0, 20, 30]
    assert np.bincount(labels[splits["test"]], minlength=3).tolist() == [0, 0, 50]
    many = graph.with_(labels=np.zeros((143, 2), np.float32), task="multi-label", num_classes=2)
    with pytest.raises(ConfigError, match="multi-label"):
        make_split(many, SplitScheme(per_class=20), 0)


def nan_at(row, column):
    features = np.zeros((200, 3), np.float32)
    features[row, column] = np.nan
    return features


LABELS = small().labels


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"features": np.zeros((199, 3), np.float32)}, r"shape \(199, 3\): allowed is \(200, F\)"),
        ({"features": np.zeros((200, 0), np.float32)}, "no column"),
        ({"features": np.zeros((200, 3), np.int64)}, "dtype int64: allowed are float16, float32"),
        ({"features": nan_at(17, 2)}, "feature 2 of vertex 17 is nan"),
        ({"features": nan_at(17, 2).astype(np.float16)}, "feature 2 of vertex 17 is nan"),
        ({"features": np.full((200, 3), 0x7F80, np.uint16), "bfloat16": True}, "vertex 0 is not f"),
        ({"features": np.zeros((200, 3), np.float32), "bfloat16": True}, "allowed are uint16"),
        ({"labels": np.zeros(199, int)}, r"labels have shape \(199,\): allowed is \(200,\)"),
        ({"labels": np.zeros(200)}, "labels have dtype float64: allowed are integers"),
        ({"labels": np.where(np.arange(200) == 3, 4, LABELS)}, "label of vertex 3 is 4: .* 0 to 3"),
        ({"labels": np.where(np.arange(200) == 3, -2, LABELS)}, "label of vertex 3 is -2"),
        ({"task": "multi-label"}, r"multi-label labels have shape \(200,\): allowed is \(200, 4\)"),
        (
            {"task": "multi-label", "labels": np.full((200, 4), 0.5)},
            r"label of vertex 0 is \[0.5, 0.5, 0.5, 0.5\]: allowed are 0, 1 and NaN",
        ),
        (
            {"task": "regression", "labels": np.full((200, 4), np.inf)},
            "allowed are finite numbers",
        ),
        ({"splits": {"train": np.array([200])}}, "row 0, names vertex 200, which does not exist"),
        ({"splits": {"train": np.array([-1])}}, "names vertex -1"),
        ({"splits": {"train": np.array([1.0])}}, "allowed is a list of vertex ids"),
        ({"splits": {"train": np.flatnonzero(LABELS < 0)}}, "which has no label"),
        ({"splits": {"training": np.array([1])}}, "split 'training': allowed are train, valid"),
        ({"splits": {}}, "there is no training vertex"),
        ({"splits": {"test": np.flatnonzero(LABELS >= 0)}}, "there is no training vertex"),
        ({"indptr": np.zeros(1, np.int64), "indices": np.zeros(0, np.int32)}, "the graph is empty"),
        ({"indptr": small().indptr + 1}, "indptr must rise from 0"),
        ({"indptr": small().indptr[::-1]}, "indptr must rise from 0"),
        ({"indices": np.where(small().indices == 7, 200, small().indices)}, "joins vertex 200 to"),
        ({"indices": small().indices[::-1]}, "in-neighbours of vertex [0-9]+ are not ascending"),
        ({"edge_weight": np.ones(3)}, r"have weights of shape \(3,\)"),
        ({"edge_weight": np.full(small().num_edges, np.inf)}, "edge 0 has weight inf"),
    ],
)
def test_validation_names_what_is_wrong(change, said):
    with pytest.raises(DataError, match=rf"^the source: .*{said}"):
        validate(small(**change), "the source")


@pytest.mark.parametrize("chunk", [1, 40, 1 << 26])
def test_validation_by_chunks(chunk, monkeypatch):
    monkeypatch.setattr("gnndist.data.validation.CHUNK", chunk)
    graph = small()
    assert validate(graph, "x") is graph
    with pytest.raises(DataError, match="feature 1 of vertex 150 is nan"):
        validate(small(features=nan_at(150, 1)), "x")
    for at in (1, 37, 300):
        indices = graph.indices.copy()
        rows = np.searchsorted(graph.indptr, at, side="right") - 1
        if at == graph.indptr[rows]:
            at += 1
        indices[at] = indices[at - 1]
        with pytest.raises(DataError, match="not ascending"):
            validate(small(indices=indices), "x")


def test_a_graph_without_labels_needs_no_split():
    bare = small(labels=None, num_classes=0, splits={}, features=None)
    assert validate(bare, "x") is bare
