"""OGB's five data sets from their raw files, with no network and nobody to ask."""

import gzip
import shutil
from pathlib import Path

import numpy as np
import ogb_layout
import pytest
import scipy.sparse as sp

from gnndist.data import building, load, tables
from gnndist.errors import DataError

pytest.importorskip("pandas")


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    ogb_layout.go_offline(monkeypatch)


def adjacency(graph):
    n = graph.num_vertices
    ones = np.ones(graph.num_edges)
    return sp.csr_array((ones, graph.indices, graph.indptr), shape=(n, n)).toarray()


def dense(edges, n, symmetrize):
    matrix = np.zeros((n, n))
    matrix[edges[:, 1], edges[:, 0]] = 1
    return np.maximum(matrix, matrix.T) if symmetrize else matrix


@pytest.mark.parametrize("symmetrize", [None, False])
@pytest.mark.parametrize("name", ogb_layout.NAMES)
def test_reads_what_was_written(name, symmetrize, tmp_path):
    tiny = ogb_layout.write_ogb(name, tmp_path)
    n = len(tiny.labels)

    graph = load(name, root=tmp_path, symmetrize=symmetrize)

    assert (graph.name, graph.evaluator) == (name, name)
    expected = dense(tiny.edges, n, symmetrize is None)
    assert np.array_equal(adjacency(graph), expected)
    assert graph.symmetric == (symmetrize is None)
    assert graph.edge_counts.read == len(tiny.edges)
    assert graph.edge_counts.self_loops >= 1
    assert graph.edge_counts.duplicates >= 1
    for part, ids in tiny.splits.items():
        assert np.array_equal(graph.splits[part], ids)
    if name == "ogbn-proteins":
        assert (graph.task, graph.num_classes) == ("multi-label", 112)
        assert np.array_equal(graph.labels, tiny.labels)
    else:
        assert graph.task == "single-label"
        expected = np.where(np.isnan(tiny.labels[:, 0]), -1, tiny.labels[:, 0])
        assert np.array_equal(graph.labels, expected)
        assert graph.features.dtype == tiny.features.dtype
        assert np.array_equal(graph.features, tiny.features)


def test_class_counts_are_the_official_ones(tmp_path):
    counts = {}
    for name in ogb_layout.NAMES:
        ogb_layout.write_ogb(name, tmp_path)
        counts[name] = load(name, root=tmp_path).num_classes
    assert list(counts.values()) == [40, 47, 112, 172, 349]


@pytest.mark.parametrize("symmetrize", [True, False])
def test_protein_features_are_means_over_in_edges(symmetrize, tmp_path, monkeypatch):
    tiny = ogb_layout.write_ogb("ogbn-proteins", tmp_path)
    monkeypatch.setattr(tables, "ROWS", 17)  # several chunks
    expected = np.zeros((len(tiny.labels), 8))
    for vertex in range(len(expected)):
        rows = tiny.edge_features[tiny.edges[:, 1] == vertex]
        if symmetrize:
            rows = np.concatenate([rows, tiny.edge_features[tiny.edges[:, 0] == vertex]])
        if len(rows):
            expected[vertex] = rows.mean(axis=0, dtype=np.float64)

    graph = load("ogbn-proteins", root=tmp_path, symmetrize=symmetrize)

    assert np.allclose(graph.features, expected, atol=1e-6)
    assert not graph.features[-1].any()  # the isolated one


def test_agrees_with_the_ogb_package(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTDATED_IGNORE", "1")
    raw = pytest.importorskip("ogb.io.read_graph_raw")
    tiny = ogb_layout.write_ogb("ogbn-products", tmp_path)
    theirs = raw.read_csv_graph_raw(str(tiny.folder / "raw"), add_inverse_edge=True)[0]

    ours = load("ogbn-products", root=tmp_path)

    assert np.array_equal(
        adjacency(ours), dense(theirs["edge_index"].T, theirs["num_nodes"], symmetrize=False)
    )
    assert np.array_equal(ours.features, theirs["node_feat"])


def test_large_graphs_come_out_the_same(tmp_path, monkeypatch):
    ogb_layout.write_ogb("ogbn-arxiv", tmp_path)
    small = load("ogbn-arxiv", root=tmp_path)
    monkeypatch.setattr(building, "ON_DISK", 1)
    monkeypatch.setattr("gnndist.data.scratch.IN_MEMORY", 100)

    large = load("ogbn-arxiv", root=tmp_path, scratch=tmp_path)

    assert isinstance(large.indices, np.memmap)
    assert isinstance(large.features, np.memmap)
    for name in ("indptr", "indices", "features", "labels"):
        assert np.array_equal(getattr(large, name), getattr(small, name))
    assert large.edge_counts == small.edge_counts
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ogbn_arxiv"]  # nothing left behind


def test_nothing_is_written_beside_the_raw_files(tmp_path):
    for name in ogb_layout.NAMES:
        ogb_layout.write_ogb(name, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for name in ogb_layout.NAMES:
        load(name, root=tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_folder_itself_may_be_named(tmp_path):
    tiny = ogb_layout.write_ogb("ogbn-arxiv", tmp_path)
    assert load("ogbn-arxiv", root=tiny.folder).num_vertices == len(tiny.labels)


def rewritten(path, text):
    with gzip.open(path, "wt") as file:
        file.write(text)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("raw/edge.csv.gz", "0,1\n1,60\n", r"edge.csv.gz: row 2: joins vertex 1 to 60: allowed"),
        ("raw/edge.csv.gz", "0,1\n-1,6\n", r"edge.csv.gz: row 2: joins vertex -1"),
        ("raw/edge.csv.gz", "0,1\n1,99999999999999999999\n", r"row 2: field 2 is '9999"),
        ("raw/edge.csv.gz", "0,1\n1,x\n", r"row 2: field 2 is 'x': allowed is a whole number"),
        ("raw/edge.csv.gz", "0,1\n1\n", r"row 2: field 2 is ''"),
        ("raw/edge.csv.gz", "0,1\n1,2,3\n", r"edge.csv.gz: not a sound table: .*line 2"),
        ("raw/edge.csv.gz", "0,1,2\n", r"edge.csv.gz: 3 columns: allowed are 2"),
        ("raw/edge.csv.gz", "", r"edge.csv.gz: empty"),
        ("raw/node-feat.csv.gz", "1.0,2.0\n", r"node-feat.csv.gz: 1 rows, but there are 60"),
        ("raw/node-feat.csv.gz", "1.0,nan\n" * 60, r"feature 1 of vertex 0 is nan"),
        ("raw/node-label.csv.gz", "40\n" * 60, r"label in row 0 is 40: allowed are .* 0 to 39"),
        ("raw/node-label.csv.gz", "1\n" * 61, r"node-label.csv.gz: 61 rows"),
        ("raw/num-node-list.csv.gz", "0\n", r"num-node-list.csv.gz: counts \[0\]"),
        ("split/time/train.csv.gz", "60\n", r"split 'train', row 0, names vertex 60"),
        ("split/time/train.csv.gz", "1\n1\n", r"split 'train' names vertex 1 more than once"),
    ],
)
def test_a_bad_file_is_named_with_its_row(file, text, said, tmp_path):
    tiny = ogb_layout.write_ogb("ogbn-arxiv", tmp_path)
    rewritten(tiny.folder / file, text)
    with pytest.raises(DataError, match=said):
        load("ogbn-arxiv", root=tmp_path)


def test_a_missing_or_cut_file_is_named(tmp_path):
    tiny = ogb_layout.write_ogb("ogbn-arxiv", tmp_path)
    features = tiny.folder / "raw" / "node-feat.csv.gz"
    features.write_bytes(features.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"node-feat.csv.gz: not a whole gzip file"):
        load("ogbn-arxiv", root=tmp_path)
    features.unlink()
    with pytest.raises(DataError, match=r"node-feat.csv.gz: no table here"):
        load("ogbn-arxiv", root=tmp_path)


@pytest.mark.parametrize("rows", [239, 241])
def test_edge_features_must_be_one_row_an_edge(rows, tmp_path, monkeypatch):
    tiny = ogb_layout.write_ogb("ogbn-proteins", tmp_path)
    monkeypatch.setattr(tables, "ROWS", 24)
    ogb_layout.write_table(tiny.folder / "raw" / "edge-feat.csv.gz", np.ones((rows, 8)))
    with pytest.raises(DataError, match=r"edge-feat.csv.gz: not one row for each edge"):
        load("ogbn-proteins", root=tmp_path)


def test_counts_of_types_must_have_their_names(tmp_path):
    tiny = ogb_layout.write_ogb("ogbn-mag", tmp_path)
    path = tiny.folder / "raw" / "num-node-dict.csv.gz"
    rewritten(path, "author,author,paper\n7,60\n")
    with pytest.raises(DataError, match="3 names, but 2 numbers"):
        load("ogbn-mag", root=tmp_path)
    rewritten(path, "author,articles\n7,60\n")
    with pytest.raises(DataError, match="names no 'paper' but author, articles"):
        load("ogbn-mag", root=tmp_path)


def test_another_release_is_refused(tmp_path):
    tiny = ogb_layout.write_ogb("ogbn-mag", tmp_path)
    shutil.move(tiny.folder / "RELEASE_v2.txt", tiny.folder / "RELEASE_v1.txt")
    with pytest.raises(DataError, match=r"RELEASE_v1.txt: allowed is release 2"):
        load("ogbn-mag", root=tmp_path)


def test_missing_data_is_not_fetched_unasked(tmp_path: Path):
    with pytest.raises(DataError, match=r"about 61 GB.*--yes.*--root"):
        load("ogbn-papers100M", root=tmp_path)
    assert not list(tmp_path.iterdir())
