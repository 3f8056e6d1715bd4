"""Numpy archives: every layout, and headers that lie."""

import io
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from gnndist.data import load, npz
from gnndist.errors import ConfigError, DataError

N, E, F = 12, 30, 4


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    order = rng.permutation(N)
    return {
        "edge_index": rng.integers(0, N, (2, E)),
        "node_feat": rng.standard_normal((N, F)).astype(np.float16),
        "node_label": rng.integers(0, 3, N).astype(np.int16),
        "train": order[:6].astype(np.int32),
        "valid": order[6:9],
        "test": order[9:],
    }


def dense(graph):
    ones = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    n = graph.num_vertices
    return sp.csr_array((ones, graph.indices, graph.indptr), shape=(n, n)).toarray()


def saved(path, **changes):
    np.savez(path, **{k: v for k, v in (arrays() | changes).items() if v is not None})
    return path


def test_edge_index_layout(tmp_path):
    path = saved(tmp_path / "mine.npz")
    graph = load(path, symmetrize=False)
    data = arrays()
    expected = np.zeros((N, N))
    expected[data["edge_index"][1], data["edge_index"][0]] = 1
    assert np.array_equal(dense(graph), expected)
    assert graph.name == "mine"
    assert graph.features.dtype == np.float16
    assert np.array_equal(graph.features, data["node_feat"])
    assert np.array_equal(graph.labels, data["node_label"])
    assert np.array_equal(graph.splits["train"], data["train"])
    assert np.array_equal(dense(load(path)), np.maximum(expected, expected.T))


def test_weights_of_equal_edges_are_added(tmp_path):
    edges = np.array([[0, 0, 1, 2], [1, 1, 0, 2]])
    path = saved(tmp_path / "w.npz", edge_index=edges, edge_weight=np.array([1.0, 2.0, 4.0, 8.0]))
    directed = load(path, symmetrize=False)
    assert dense(directed)[:3, :3].tolist() == [[0, 4, 0], [3, 0, 0], [0, 0, 8]]
    assert directed.edge_counts.duplicates == 1
    assert dense(load(path))[:3, :3].tolist() == [[0, 7, 0], [7, 0, 0], [0, 0, 8]]


def test_symmetric_weights_are_left_alone(tmp_path):
    edges = np.array([[0, 1], [1, 0]])
    path = saved(tmp_path / "w.npz", edge_index=edges, edge_weight=np.array([3.0, 3.0]))
    graph = load(path)
    assert graph.edge_weight.tolist() == [3, 3]
    assert graph.edge_counts.reversed == 0


@pytest.mark.parametrize(
    ("labels", "task", "width"),
    [
        (np.arange(N) % 3, "single-label", 3),
        ((np.arange(N) % 3)[:, None], "single-label", 3),
        (np.array([0.0, np.nan] * 6), "single-label", 1),
        (np.arange(N) / 7, "regression", 1),
        (np.eye(N)[:, :5], "multi-label", 5),
        (np.eye(N)[:, :5] / 2, "regression", 5),
    ],
)
def test_labels_say_the_task(labels, task, width, tmp_path):
    graph = load(saved(tmp_path / "a.npz", node_label=labels, train=None, valid=None, test=None))
    assert (graph.task, graph.num_classes) == (task, width)


def test_masks_and_split_index(tmp_path):
    masks = np.arange(3)[:, None] == np.arange(N) % 3
    path = tmp_path / "minesweeper.npz"
    data = arrays()
    np.savez(
        path,
        edges=data["edge_index"].T,
        node_features=data["node_feat"].astype(np.float32),
        node_labels=data["node_label"].astype(np.int64),
        train_masks=masks,
        val_masks=np.roll(masks, 1, axis=0),
        test_masks=np.roll(masks, 2, axis=0),
    )
    for index in range(3):
        graph = load("minesweeper", root=tmp_path, split_index=index)
        assert np.array_equal(graph.splits["train"], np.flatnonzero(masks[index]))
        assert np.array_equal(graph.splits["valid"], np.flatnonzero(masks[index - 1]))
    assert graph.name == "minesweeper"
    with pytest.raises(ConfigError, match=r"split index 3: .* has splits 0 to 2"):
        load(path, split_index=3)
    with pytest.raises(ConfigError, match=r"split index 1: .* one split, number 0"):
        load(saved(tmp_path / "one.npz"), split_index=1)


def test_gnn_benchmark_layout(tmp_path):
    rng = np.random.default_rng(1)
    adjacency = sp.random_array((N, N), density=0.2, format="csr", rng=rng)
    adjacency.data[:] = 1
    attributes = sp.csr_array(rng.integers(0, 3, (N, F)).astype(np.float32))
    parts = {}
    for prefix, m in (("adj", adjacency), ("attr", attributes)):
        parts |= {f"{prefix}_{k}": getattr(m, k) for k in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "b.npz", labels=np.arange(N) % 2, **parts)
    graph = load(tmp_path / "b.npz", symmetrize=False)
    assert np.array_equal(dense(graph), adjacency.toarray().T)  # row → column
    assert graph.features.dtype == np.float16
    assert np.array_equal(graph.features, attributes.toarray())
    parts["attr_data"] = parts["attr_data"] + 0.1  # float16 does not hold that
    np.savez(tmp_path / "b.npz", labels=np.arange(N) % 2, **parts)
    assert load(tmp_path / "b.npz").features.dtype == np.float32
    parts["attr_indices"] = parts["attr_indices"] + 1
    np.savez(tmp_path / "b.npz", labels=np.arange(N) % 2, **parts)
    with pytest.raises(DataError, match=r"attr: row [0-9]+ names column 4: allowed are 0 to 3"):
        load(tmp_path / "b.npz")


def test_reddit_pair_by_either_file_and_by_name(tmp_path):
    rng = np.random.default_rng(2)
    matrix = sp.coo_array(sp.random_array((N, N), density=0.3, rng=rng))
    matrix.data[:] = 1
    types = 1 + np.arange(N) % 3
    sp.save_npz(tmp_path / "reddit_graph.npz", matrix)
    np.savez(
        tmp_path / "reddit_data.npz",
        feature=rng.standard_normal((N, F)).astype(np.float32),
        label=np.arange(N) % 4,
        node_types=types,
        node_ids=np.arange(N),
    )
    by_name = load("reddit", root=tmp_path)
    for graph in (
        by_name,
        load(tmp_path / "reddit_data.npz"),
        load(tmp_path / "reddit_graph.npz"),
    ):
        assert np.array_equal(dense(graph), np.maximum(matrix.toarray(), matrix.toarray().T) > 0)
        assert np.array_equal(graph.splits["valid"], np.flatnonzero(types == 2))
        assert graph.name == "reddit"
    (tmp_path / "reddit_data.npz").unlink()
    alone = load(tmp_path / "reddit_graph.npz")  # an adjacency like any other
    assert alone.labels is None
    assert alone.num_vertices == N


@pytest.mark.parametrize("form", ["csr", "coo"])
def test_scipy_archive_with_files_beside_it(form, tmp_path):
    matrix = sp.random_array((N, N), density=0.3, format=form, rng=np.random.default_rng(3))
    sp.save_npz(tmp_path / "m.npz", matrix)
    np.save(tmp_path / "x.npy", np.ones((N, F), np.float32))
    np.save(tmp_path / "y.npy", np.arange(N) % 3)
    graph = load(
        tmp_path / "m.npz",
        symmetrize=False,
        features=tmp_path / "x.npy",
        labels=tmp_path / "y.npy",
    )
    assert np.allclose(dense(graph), matrix.toarray().T)
    assert graph.num_classes == 3
    assert len(graph.splits["train"]) == 7


def test_large_uncompressed_members_are_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "MAP_FROM", 1)
    graph = load(saved(tmp_path / "a.npz"))
    assert isinstance(graph.features, np.memmap)
    assert np.array_equal(graph.features, arrays()["node_feat"])


def test_large_compressed_members_are_unpacked_to_scratch(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "SPILL_FROM", 1)
    np.savez_compressed(tmp_path / "a.npz", **arrays())
    graph = load(tmp_path / "a.npz", scratch=tmp_path)
    assert isinstance(graph.features, np.memmap)
    assert np.array_equal(graph.features, arrays()["node_feat"])
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def member(shape, descr="<f4", body=b"", fortran=False):
    """A .npy whose header says `shape`, whatever its body is."""
    out = io.BytesIO()
    header = {"descr": descr, "fortran_order": fortran, "shape": shape}
    np.lib.format.write_array_header_1_0(out, header)
    return out.getvalue() + body


def with_member(path, key, content):
    """An archive of the edge-index layout with one member replaced by `content`."""
    saved(path, **{key: None})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{key}.npy", content)
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (member((10**12, 128)), r"claims shape \(1000000000000, 128\)"),
        (member((-1, 4)), r"allowed are lengths from 0"),
        (member((N, F), body=bytes(4 * N * F - 1)), r"192 bytes, but holds 191"),
        (member((N,), "|O", b"cos\nsystem\n(S'true'\ntR."), r"dtype object: allowed"),
        (member((N, F), "<f4", bytes(4 * N * F)).replace(b"NUMPY", b"NUMPX"), r"magic string"),
        (b"", r"not a sound numpy archive: array 'node_feat'"),
        (b"\x93NUMPY\x01\x00\xff\xff{", r"not a sound numpy archive"),
        (b"\x93NUMPY\x07\x00", r"npy version \(7, 0\)"),
    ],
)
def test_a_lying_header_is_caught_before_anything_is_allocated(content, said, tmp_path):
    path = with_member(tmp_path / "bomb.npz", "node_feat", content)
    with pytest.raises(DataError, match=said) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_zip_bomb_is_refused_by_its_size(tmp_path, monkeypatch):
    body = bytes(1 << 20)
    path = with_member(tmp_path / "bomb.npz", "node_feat", member((N, 1 << 20), "|i1", body * N))
    assert path.stat().st_size < 1 << 16

    class Small:
        total = 1 << 20

    monkeypatch.setattr("psutil.virtual_memory", Small)
    with pytest.raises(DataError, match=r"node_feat.* would take 12,582,912 bytes: this machine"):
        load(path)


def test_a_bomb_of_vertices_is_refused(tmp_path):
    path = saved(
        tmp_path / "a.npz",
        edge_index=np.array([[0], [10**15]]),
        node_feat=None,
        node_label=None,
        train=None,
        valid=None,
        test=None,
    )
    with pytest.raises(DataError, match="a graph of 1000000000000001 vertices would take"):
        load(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"edge_index": np.array([[0], [N]])}, f"edge 0 joins vertex 0 to {N}: allowed .* 0 to 11"),
        ({"edge_index": np.array([[-1], [0]])}, "edge 0 joins vertex -1 to 0"),
        ({"edge_index": np.array([[2**40], [0]])}, "edge 0 joins vertex 1099511627776"),
        ({"edge_index": np.array([[2**63], [0]], np.uint64)}, "allowed is less than 2.63"),
        ({"edge_index": np.zeros((E, 2), int)}, r"shape \(30, 2\): allowed is \(2, edges\)"),
        ({"edge_index": np.zeros((2, E))}, "edge_index is float64"),
        ({"edge_weight": np.ones(E - 1)}, r"edge_weight has shape \(29,\): allowed is \(30,\)"),
        ({"edge_weight": np.full(E, np.nan)}, "edge 0 has weight nan"),
        ({"node_feat": np.ones((N + 1, F))}, r"label\w* .*\(12,\)|shape \(12,\)"),
        ({"node_feat": np.ones(N)}, "features are float64 of shape"),
        ({"node_feat": np.full((N, F), np.inf)}, "feature 0 of vertex 0 is inf"),
        ({"node_feat": np.array([["a"] * F] * N)}, "features are <U1"),
        ({"node_feat": np.full((N, F), 2**24 + 1)}, "features range from 16777217"),
        ({"node_label": np.full(N, -2)}, "label in row 0 is -2"),
        ({"node_label": np.full(N, N)}, "label in row 0 is 12: allowed are classes from 0 to 11"),
        ({"node_label": np.full(N, np.inf)}, "label in row 0 is infinite"),
        ({"node_label": np.zeros(N - 1, int)}, "labels have shape"),
        ({"train": np.array([N])}, f"split 'train', row 0, names vertex {N}"),
        ({"train": np.array([0, 0])}, "split 'train' names vertex 0 more than once"),
        ({"valid": arrays()["train"]}, "is in split 'valid' .row 0. and in 'train'"),
        ({"train": np.zeros(0, int)}, "there is no training vertex"),
        ({"train": np.array([0.5])}, "train is float64"),
        ({"num_nodes": np.array([1, 2])}, "num_nodes has 2 entries"),
        ({"num_nodes": np.array(-5)}, "-5 vertices"),
    ],
)
def test_contradictions_are_named(change, said, tmp_path):
    with pytest.raises(DataError, match=said):
        load(saved(tmp_path / "a.npz", **change))


def test_unknown_layout_and_broken_archive(tmp_path):
    np.savez(tmp_path / "a.npz", something=np.zeros(3))
    with pytest.raises(DataError, match="holds something: no layout known here"):
        load(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(b"not a zip")
    with pytest.raises(DataError, match=r"b.npz: not a numpy archive"):
        load(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_bytes(b"")
    with pytest.raises(DataError, match=r"c.npz: not a numpy archive"):
        load(tmp_path / "c.npz")
