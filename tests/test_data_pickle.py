"""Planetoid's pickles: read as data, never run."""

import collections
import pickle
import pickletools
import shutil

import numpy as np
import pytest
import scipy.sparse as sp

from gnndist.data import load
from gnndist.data.inert_pickle import read_pickle
from gnndist.errors import DataError


class Runs:
    """Pickled, it is a call of `function` with `args`."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def dumped(path, thing, protocol=2):
    path.write_bytes(pickle.dumps(thing, protocol=protocol))
    return path


def same(a, b):
    if sp.issparse(b):
        return sp.issparse(a) and a.shape == b.shape and np.array_equal(a.toarray(), b.toarray())
    return a.dtype == b.dtype and np.array_equal(a, b)


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize(
    "thing",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.arange(6, dtype=">i8"),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros((0, 4), np.float32),
        np.array([True, False]),
        sp.csr_matrix(np.diag([1.0, 0.0, 2.0])),
    ],
)
def test_arrays_come_back(thing, protocol, tmp_path):
    found = read_pickle(dumped(tmp_path / "p", thing, protocol))
    assert same(found, thing.astype(thing.dtype.newbyteorder("=")))


def test_containers_come_back(tmp_path):
    graph = collections.defaultdict(list, {0: [1, 2], 2: []})
    assert read_pickle(dumped(tmp_path / "p", graph)) == {0: [1, 2], 2: []}
    ordered = collections.OrderedDict([(3, [1]), (1, [3])])
    assert list(read_pickle(dumped(tmp_path / "p", ordered)).items()) == [(3, [1]), (1, [3])]


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    "thing",
    [
        Runs(print, "run"),
        Runs(eval, "open('ran', 'w')"),
        Runs(getattr, "", "format"),
        Runs(np.load, "x"),
        {"a": [Runs(__import__, "os")]},
        np.array([Runs(print, "run")], dtype=object),
        np.random.default_rng,
        np.dtype("datetime64[s]"),
        ValueError("x"),
        type,
    ],
)
def test_a_pickle_that_would_run_something_is_refused(
    thing, protocol, tmp_path, monkeypatch, capsys
):
    path = dumped(tmp_path / "p", thing, protocol)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"p: .*(refused|expected|contents|dtype|whole pickle)"):
        found = read_pickle(path)
        pytest.fail(f"read as {found!r}")
    assert capsys.readouterr().out == ""
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize(
    "code",
    [
        b"cos\nsystem\n(S'touch ran'\ntR.",
        b"cposix\nsystem\n(S'touch ran'\ntR.",
        b"\x80\x02cnumpy.testing._private.utils\nrunstring\n(S'x=1'\n}tR.",
        b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93\x8c\x05x = 1\x85R.",
        b"(S'touch ran'\nios\nsystem\n.",
        b"\x80\x02P0\n.",  # something outside
        b"\x80\x02\x82\x01.",  # an extension
        b"\x80\x02r\xff\xff\xff\x7fN.",  # a memo of two thousand million entries
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx.",  # a string of 2^63 bytes
        b"",
        b".",
        b"garbage",
    ],
)
def test_hand_made_pickles_end_as_errors(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ind.cora.graph").write_bytes(code)
    with pytest.raises(DataError, match=r"ind.cora.graph: "):
        read_pickle(tmp_path / "ind.cora.graph")
    assert [p.name for p in tmp_path.iterdir()] == ["ind.cora.graph"]


def test_arrays_that_contradict_themselves(tmp_path):
    good = pickle.dumps(np.arange(6, dtype=np.int32), protocol=2)
    assert [op.name for op, _, _ in pickletools.genops(good)].count("BUILD") == 2
    (tmp_path / "p").write_bytes(good.replace(b"K\x06\x85", b"K\x07\x85"))
    with pytest.raises(DataError, match="claims 28 bytes, but holds 24"):
        read_pickle(tmp_path / "p")
    matrix = sp.csr_matrix(np.eye(3))
    matrix.indices[1] = 7
    with pytest.raises(DataError, match="row 1 names column 7: allowed are 0 to 2"):
        read_pickle(dumped(tmp_path / "p", matrix))


# A tiny data set with a gap in its test ids, as CiteSeer has.
KNOWN, TEST, FEATURES, CLASSES = 510, 4, 5, 3


def write_planetoid(folder, name="citeseer"):
    rng = np.random.default_rng(5)
    n = KNOWN + TEST + 1  # one isolated id that test.index leaves out
    features = (rng.random((KNOWN + TEST, FEATURES)) < 0.4).astype(np.float32)
    labels = rng.integers(0, CLASSES, KNOWN + TEST)
    hot = np.eye(CLASSES, dtype=np.int32)[labels]
    index = np.array([513, 510, 514, 511])  # 512 is missing
    graph = collections.defaultdict(list)
    for source in range(n - 1):
        graph[source] = sorted(rng.integers(0, n, 3).tolist())
    parts = {
        "x": sp.csr_matrix(features[:6]),
        "allx": sp.csr_matrix(features[:KNOWN]),
        "tx": sp.csr_matrix(features[KNOWN:]),
        "y": hot[:6],
        "ally": hot[:KNOWN],
        "ty": hot[KNOWN:],
        "graph": graph,
    }
    for part, thing in parts.items():
        dumped(folder / f"ind.{name}.{part}", thing)
    (folder / f"ind.{name}.test.index").write_text("".join(f"{i}\n" for i in index))
    return features, labels, index


def test_test_rows_go_where_the_index_says(tmp_path):
    features, labels, index = write_planetoid(tmp_path)
    graph = load("citeseer", root=tmp_path, normalize_features=False)
    assert graph.num_vertices == KNOWN + TEST + 1
    assert np.array_equal(graph.features[:KNOWN], features[:KNOWN])
    assert np.array_equal(graph.features[index], features[KNOWN:])
    assert not graph.features[512].any()
    assert np.array_equal(graph.labels[index], labels[KNOWN:])
    assert graph.labels[512] == -1
    assert graph.splits["train"].tolist() == list(range(6))
    assert graph.splits["valid"].tolist() == list(range(6, 506))
    assert graph.splits["test"].tolist() == [510, 511, 513, 514]


@pytest.mark.parametrize(
    ("part", "thing", "said"),
    [
        ("allx", np.eye(3), "allowed is a sparse matrix"),
        ("ally", np.eye(3), "ally: 3 rows of labels, but 510 rows of features"),
        ("ally", np.full((KNOWN, CLASSES), 1), r"row 0 is \[1, 1, 1\]: allowed is one 1"),
        ("ty", np.eye(4)[:, :2], "4 features and 2 classes|5 features and 2 classes"),
        ("y", np.zeros((11, CLASSES)), "more than the 510 rows"),
        ("graph", [1, 2], "allowed is a dict"),
        ("graph", {0: 1}, "allowed is a dict"),
        ("graph", {0: ["a"]}, "whole numbers"),
        ("graph", {0: [1.5]}, "whole numbers"),
        ("graph", {0: [True]}, "whole numbers"),
        ("graph", {0: [2**70]}, "larger than"),
        ("graph", {0: [515]}, "edge 0 joins vertex 0 to 515: allowed are ids 0 to 514"),
        ("graph", {-1: [0]}, "edge 0 joins vertex -1 to 0"),
        ("test.index", "1\n2\n3\n4\n", "line 1: id 1: allowed are ids from 510"),
        ("test.index", "510\n511\n511\n513\n", "id 511 occurs more than once"),
        ("test.index", "510\n511\n513\n", r"\(3,\) ids, but .*ty has 4 rows"),
        ("test.index", "510\nx\n511\n513\n", "not a list of vertex ids"),
        ("test.index", "510\n511\n512\n99999999999999999999\n", "not a list of vertex ids"),
        ("test.index", "510\n511\n512\n9999999999\n", "line 4: id 9999999999"),
        ("test.index", "", r"\(0,\) ids"),
    ],
)
def test_files_that_do_not_fit_together(part, thing, said, tmp_path):
    write_planetoid(tmp_path)
    path = tmp_path / f"ind.citeseer.{part}"
    if isinstance(thing, str):
        path.write_text(thing)
    else:
        dumped(path, thing)
    with pytest.raises(DataError, match=said) as caught:
        load("citeseer", root=tmp_path)
    assert "ind.citeseer" in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"cora: no file ind.cora.graph in .*github.*--root"):
        load("cora", root=tmp_path)
    write_planetoid(tmp_path)
    (tmp_path / "ind.citeseer.tx").unlink()
    with pytest.raises(DataError, match=r"ind.citeseer.tx: no pickle here"):
        load("citeseer", root=tmp_path)


@pytest.mark.parametrize("place", ["planetoid", "citeseer", "citeseer/raw"])
def test_usual_folders_are_looked_in(place, tmp_path):
    folder = tmp_path / place
    folder.mkdir(parents=True)
    write_planetoid(folder)
    assert load("citeseer", root=tmp_path).num_vertices == 515
    shutil.rmtree(folder)
