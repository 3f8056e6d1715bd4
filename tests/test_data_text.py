"""Edge lists with their feature and label files, and Matrix Market."""

import gzip

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from gnndist.data import load, tables
from gnndist.errors import DataError

pytest.importorskip("pandas")


def written(tmp_path, name, text):
    path = tmp_path / name
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def edges(graph):
    """{(source, destination)} by the user's own ids."""
    names = np.arange(graph.num_vertices) if graph.vertex_names is None else graph.vertex_names
    reader = np.repeat(names, np.diff(graph.indptr))
    return set(zip(names[graph.indices].tolist(), reader.tolist(), strict=True))


@pytest.mark.parametrize("rows", [1, 2, 1 << 20])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.csv", "10,20\n20,30\n10,10\n10,20\n"),
        ("e.csv", "src,dst\n10,20\n20,30\n10,10\n10,20\n"),
        ("e.csv", "10,20\r\n20,30\n\n10,10\r\n10,20"),
        ("e.csv", "\ufeff10,20\n20,30\n10,10\n10,20\n"),
        ("e.tsv.gz", "10\t20\n20\t30\n10\t10\n10\t20\n"),
        (
            "e.txt",
            "# Directed graph: e.txt\n# FromNodeId\tToNodeId\n10\t20\n20\t30\n10\t10\n10\t20",
        ),
        ("e.txt.gz", "10 20\n20   30\n10 10\n10 20\n"),
        ("e.txt", "10;20\n20;30\n10;10\n10;20\n"),
        ("e.csv", "10,20,1\n20,30,1\n10,10,1\n10,20,1\n"),
    ],
)
def test_sparse_integer_ids(name, text, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "ROWS", rows)
    graph = load(written(tmp_path, name, text), symmetrize=False)
    if text.endswith(",1\n"):
        # Four edges of weight 1: the same as no weights.
        assert graph.edge_weight is None
    assert edges(graph) == {(10, 20), (20, 30), (10, 10)}
    assert graph.vertex_names.tolist() == [10, 20, 30]
    assert (graph.edge_counts.read, graph.edge_counts.duplicates) == (4, 1)
    assert graph.name == "e"


def test_string_ids_and_tables_by_id(tmp_path):
    path = written(tmp_path, "e.csv", 'who,whom\nbob,ann\nann,"c, the third"\nbob,dé\n')
    features = written(
        tmp_path, "x.csv", 'id,a,b\ndé,7,8\nann,1,2.5\nbob,3,4\n"c, the third",5,6\nlone,9,9\n'
    )
    labels = written(
        tmp_path,
        "y.csv",
        'id,kind,split\nbob,red,train\nann,blue,valid\nlone,,\n"c, the third",red,test\n',
    )
    graph = load(path, features=features, labels=labels, header=True, symmetrize=False)
    assert graph.vertex_names.tolist() == ["ann", "bob", "c, the third", "dé", "lone"]
    assert edges(graph) == {("bob", "ann"), ("ann", "c, the third"), ("bob", "dé")}
    assert graph.features.tolist() == [[1, 2.5], [3, 4], [5, 6], [7, 8], [9, 9]]
    assert graph.labels.tolist() == [0, 1, 1, -1, -1]
    assert {k: v.tolist() for k, v in graph.splits.items()} == {
        "train": [1],
        "valid": [0],
        "test": [2],
    }


def test_plain_ids_keep_no_names(tmp_path):
    graph = load(written(tmp_path, "e.csv", "0,1\n1,2\n"))
    assert graph.vertex_names is None
    assert edges(graph) == {(0, 1), (1, 0), (1, 2), (2, 1)}


def test_rows_of_npy_files_are_vertices(tmp_path):
    path = written(tmp_path, "e.csv", "0,4\n4,2\n")
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float16).reshape(6, 2))
    np.save(tmp_path / "y.npy", np.array([0, 1, -1, 1, 0, 1]))
    graph = load(path, features=tmp_path / "x.npy", labels=tmp_path / "y.npy")
    assert (graph.num_vertices, graph.num_features, graph.num_classes) == (6, 2, 2)
    assert graph.features.dtype == np.float16
    assert graph.vertex_names is None
    assert sum(len(ids) for ids in graph.splits.values()) == 5
    path = written(tmp_path, "e.csv", "0,4\n4,6\n")
    with pytest.raises(DataError, match=r"e.csv: row 2: joins vertex 4 to 6: allowed .* 0 to 5"):
        load(path, features=tmp_path / "x.npy")
    with pytest.raises(DataError, match=r"x.npy: 6 rows|ids are strings"):
        load(written(tmp_path, "e.csv", "a,b\n"), features=tmp_path / "x.npy")


def test_labels_in_order_and_in_columns(tmp_path):
    path = written(tmp_path, "e.csv", "0,1\n1,2\n2,3\n3,4\n")
    graph = load(path, labels=written(tmp_path, "y.csv", "b\na\nb\na\nb\n"), header=False)
    assert graph.labels.tolist() == [1, 0, 1, 0, 1]
    many = "0,1,0,1\n4,0,0,1\n1,1,,1\n2,0,0,0\n3,1,1,1\n"
    graph = load(path, labels=written(tmp_path, "y.csv", many))
    assert (graph.task, graph.num_classes) == ("multi-label", 3)
    assert np.array_equal(graph.labels[1], [1, np.nan, 1], equal_nan=True)
    two = load(path, labels=written(tmp_path, "y.csv", "0,1,0\n4,0,0\n1,1,1\n2,0,1\n3,1,1\n"))
    assert (two.task, two.num_classes) == ("multi-label", 2)


def test_ids_may_be_declared_strings(tmp_path):
    path = written(tmp_path, "e.csv", "42,b\n007,42\n")
    graph = load(path, symmetrize=False)
    assert edges(graph) == {("42", "b"), ("007", "42")}
    path = written(tmp_path, "e.csv", "42,7\n007,b\n")
    with pytest.raises(DataError, match="row 2: field 2 is 'b': allowed is a whole number"):
        load(path)
    assert edges(load(path, id_kind="string", symmetrize=False)) == {("42", "7"), ("007", "b")}


def test_weights(tmp_path):
    graph = load(written(tmp_path, "e.csv", "0,1,0.5\n1,0,2\n0,1,1\n"), symmetrize=False)
    assert graph.edge_weight.tolist() == [2, 1.5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty: it has no row"),
        ("# a\n# b\n", "empty: it has no row but comments"),
        ("source,target\n", "empty: it has no row but a header"),
        ("1\n2\n", r"its first row has 1 field\(s\)"),
        ("1,2,3,4\n", r"its first row has 4 field\(s\)"),
        ("1,2\n3\n", "row 2: field 2 is ''"),
        ("1,2\n3,4,5\n", "not a sound table: .*line 2"),
        ("1,2\n3,99999999999999999999\n", "row 2: field 2 is '99999999999999999999'"),
        ("1,2\n3,4.5\n", "row 2: field 2 is '4.5'"),
        ("1,2,x\n", r"row 1: field 3 is 'x': allowed is a number"),
        ("1,2,inf\n", "row 1: the weight is inf"),
        ("1,2,\n", "row 1: the weight is nan"),
        ("a,b\n,c\n", "row 2: a vertex's id is missing: allowed are 1 to 1000"),
        (f"a,b\n{'c' * 1001},c\n", "row 2: a vertex's id is 'cccc"),
        ("a,b\na\0,c\n", "row 2: a vertex's id is 'a.x00'|not a sound table"),
        ('a,b\n"c,d\n', "not a sound table"),
        (b"1,2\n\xff\xfe,3\n", "e.csv: (not text in UTF-8|row 2|not a sound table)"),
        (b"\xff\xfe1,2\n", "not text in UTF-8"),
        (b"1,2\n\x00,3\n", "row 2: field 1 is|not a sound table"),
    ],
)
def test_malformed_edges(text, said, tmp_path):
    path = written(tmp_path, "e.csv", text)
    with pytest.raises(DataError, match=said) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ("0,1\n1,2\n", "vertex '2' has no row of features"),
        ("0,1\n1,2\n1,2\n2,3\n", "row 3: vertex '1' has a row already"),
        ("0,1\n1,x\n2,3\n", "row 2: field 2 is 'x': allowed is a number"),
        ("0,1\n1,\n2,3\n", "feature 0 of vertex 1 is nan"),
        ("0,1\n1,1e999\n2,3\n", "feature 0 of vertex 1 is inf"),
        ("0\n1\n2\n", "one column: allowed are"),
        ("0,1\n1,2,3\n", "x.csv: not a sound table"),
        ("", "x.csv: empty"),
    ],
)
def test_malformed_features(features, said, tmp_path):
    path = written(tmp_path, "e.csv", "0,1\n1,2\n")
    with pytest.raises(DataError, match=said):
        load(path, features=written(tmp_path, "x.csv", features))


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("0,1\n0,1\n", "row 2: vertex '0' has a row already"),
        ("0,1\n1,-3\n", "label in row 1 is -3"),
        ("0,1\n1,7\n", "label in row 1 is 7"),
        ("0\n1\n", "2 rows, but there are 3 vertices"),
        ("0\n1\n2\n0\n", "more rows than the 3 vertices"),
        ("0,1,train\n1,1,train\n2,,test\n", "split 'test', row 0, names vertex 2, which has no"),
        ("0,1,test\n1,1,test\n", "there is no training vertex"),
        ("0,a,b,c\n", "several columns of labels must be numbers"),
    ],
)
def test_malformed_labels(labels, said, tmp_path):
    path = written(tmp_path, "e.csv", "0,1\n1,2\n")
    with pytest.raises(DataError, match=said):
        load(path, labels=written(tmp_path, "y.csv", labels))


def test_skew_symmetric_and_empty_matrices(tmp_path):
    head = "%%MatrixMarket matrix coordinate integer skew-symmetric\n% c\n\n"
    graph = load(written(tmp_path, "m.mtx", head + "3 3 1\n3 1 5\n"), symmetrize=False)
    assert edges(graph) == {(2, 0), (0, 2)}
    assert graph.edge_weight.tolist() == [5, -5]
    graph = load(written(tmp_path, "m.mtx", head + "3 3 0\n"))
    assert (graph.num_vertices, graph.num_edges) == (3, 0)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("field", ["pattern", "integer", "real"])
@pytest.mark.parametrize("name", ["m.mtx", "m.mtx.gz"])
def test_matrix_market(field, symmetric, name, tmp_path):
    rng = np.random.default_rng(4)
    matrix = (rng.random((9, 9)) < 0.3) * rng.integers(1, 9, (9, 9))
    if symmetric:
        matrix = np.maximum(matrix, matrix.T)
    path = tmp_path / "m.mtx"
    scipy.io.mmwrite(
        path,
        sp.coo_array(matrix.astype(float if field == "real" else int)),
        field=field,
        symmetry="symmetric" if symmetric else "general",
    )
    path = written(tmp_path, name, path.read_bytes())
    graph = load(path, symmetrize=False)
    weight = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    found = sp.csr_array((weight, graph.indices, graph.indptr), shape=(9, 9)).toarray()
    assert np.array_equal(found, (matrix > 0 if field == "pattern" else matrix).T)
    assert graph.symmetric == symmetric
    assert graph.name == "m"


HEAD = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: not a Matrix Market file"),
        ("1 2 3\n", "line 1: not a Matrix Market file: it begins with '1 2 3'"),
        (HEAD, "line 2: '': allowed are rows, columns and entries"),
        (HEAD + "% c\n3 3\n", "line 3: '3 3': allowed are rows"),
        (HEAD + "3 3 1\n", "empty|not a sound table"),
        (HEAD + "3 3 1\n1 4 1\n", "row 1: the entry is at 1, 4: allowed are 1 to 3"),
        (HEAD + "3 3 1\n0 1 1\n", "row 1: the entry is at 0, 1"),
        (HEAD + "3 3 1\n-1 1 1\n", "row 1: the entry is at -1, 1"),
        (HEAD + "3 3 2\n1 1 1\n2 1 x\n", "row 2: field 3 is 'x': allowed is a number"),
        (HEAD + "3 3 2\n1 1 1\n2 1.5 1\n", "row 2: field 2 is '1.5': allowed is a whole number"),
        (HEAD + "3 3 2\n1 1 1\n2 1\n", "edge 1 has weight nan"),
        (HEAD + "3 3 1\n1 1\n", "row 1: 2 fields: allowed are 3"),
        (HEAD + "3 3 1\n1 1 nan\n", "edge 0 has weight nan"),
        (HEAD + "3 3 2\n1 1 1\n", "1 entries, but its header says 2"),
        (HEAD + "3 3 1\n1 1 1\n2 2 2\n", "2 entries, but its header says 1"),
        (HEAD + "3 4 1\n1 1 1\n", "a matrix of 3 × 4: allowed are square"),
        (HEAD + "99999999999999 99999999999999 1\n1 1 1\n", "would take .* bytes"),
        (HEAD + "3 3 99999999999999999999999\n1 1 1\n", "line 2: '3 3 9999"),
        (HEAD.replace("real", "complex") + "3 3 1\n1 1 1 1\n", "a complex general matrix in coord"),
        ("%%MatrixMarket matrix array real general\n1 1\n1\n", "in array format"),
    ],
)
def test_malformed_matrix(text, said, tmp_path):
    path = written(tmp_path, "m.mtx", text)
    with pytest.raises(DataError, match=said) as caught:
        load(path)
    assert str(path) in str(caught.value)
