"""METIS's text format, in all its variants."""

import gzip

import numpy as np
import pytest

from gnndist.data import load, metis_graph
from gnndist.errors import DataError

# The graph of the METIS manual's figures 2 and 3: 7 vertices, 11 edges.
PLAIN = "7 11\n5 3 2\n1 3 4\n5 4 2 1\n2 3 6 7\n1 3 6\n5 4 7\n6 4\n"
WEIGHTED = """% edge weights
7 11 001
5 1 3 2 2 1
1 1 3 2 4 1
5 3 4 2 2 2 1 2
2 1 3 2 6 2 7 5
1 1 3 3 6 2
5 2 4 2 7 6
6 6 4 5
"""
ALL = """7 11 111 2
9 4 1  5 1 3 2 2 1
9 2 1  1 1 3 2 4 1
9 5 1  5 3 4 2 2 2 1 2
% a comment between
9 3 1  2 1 3 2 6 2 7 5
9 1 1  1 1 3 3 6 2
9 6 1  5 2 4 2 7 6
9 2 1  6 6 4 5"""


def written(tmp_path, text, name="g.graph"):
    path = tmp_path / name
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def rows(graph):
    ends = zip(graph.indptr[:-1], graph.indptr[1:], strict=True)
    return [graph.indices[a:b].tolist() for a, b in ends]


@pytest.mark.parametrize("name", ["g.graph", "g.graph.gz"])
def test_plain(name, tmp_path):
    graph = load(written(tmp_path, PLAIN, name))
    assert graph.name == "g"
    assert graph.symmetric
    assert graph.edge_weight is None
    assert rows(graph) == [
        [1, 2, 4],
        [0, 2, 3],
        [0, 1, 3, 4],
        [1, 2, 5, 6],
        [0, 2, 5],
        [3, 4, 6],
        [3, 5],
    ]


@pytest.mark.parametrize("text", [WEIGHTED, ALL])
def test_weights(text, tmp_path):
    graph = load(written(tmp_path, text))
    assert rows(graph) == rows(load(written(tmp_path, PLAIN, "plain.graph")))
    assert graph.edge_weight[:6].tolist() == [1, 2, 1, 1, 2, 1]
    assert graph.edge_weight[-2:].tolist() == [5, 6]


def test_blank_rows_are_isolated_vertices(tmp_path):
    graph = load(written(tmp_path, "4 1\n\n4\n\n2\n\n\n"))
    assert rows(graph) == [[], [3], [], [1]]


def test_line_ends_of_windows(tmp_path):
    mixed = PLAIN.replace("\n", "\r\n", 4)
    assert rows(load(written(tmp_path, mixed))) == rows(load(written(tmp_path, PLAIN)))


@pytest.mark.parametrize("text", [PLAIN, WEIGHTED, ALL])
@pytest.mark.parametrize("block", [1, 7, 30])
def test_block_size_does_not_matter(text, block, tmp_path, monkeypatch):
    expected = rows(load(written(tmp_path, text)))
    monkeypatch.setattr(metis_graph, "BLOCK", block)
    assert rows(load(written(tmp_path, text))) == expected


def test_labels_from_a_file_beside_it(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(7) % 2)
    graph = load(written(tmp_path, PLAIN), labels=tmp_path / "y.npy")
    assert graph.num_classes == 2
    np.save(tmp_path / "y.npy", np.arange(6) % 2)
    with pytest.raises(DataError, match=r"y.npy: 6 rows, but there are 7 vertices"):
        load(written(tmp_path, PLAIN), labels=tmp_path / "y.npy")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"line 1: the header is ''"),
        ("% only\n% comments\n", r"line 3: the header is ''"),
        ("7\n", r"line 1: the header is '7': allowed is 'n m"),
        ("a b\n", r"line 1: the header is 'a b'"),
        ("-1 2\n", r"line 1: the header is '-1 2'"),
        ("2 1 7\n", r"fmt is '7'"),
        ("99999999999999999999 1\n", r"line 1: the header"),
        ("999999999999999 1\n", r"would take .* bytes: this machine"),
        ("1 999999999999999\n", r"would take .* bytes: this machine"),
        ("0 0\n", r"the graph is empty"),
        (PLAIN.replace("7 11", "8 11"), r"7 rows, but its header says 8"),
        (PLAIN.replace("7 11", "6 11"), r"more than the 6 rows its header says"),
        (PLAIN.replace("7 11", "7 12"), r"the header says 12 edges.*there are 22"),
        (PLAIN.replace("5 4 2 1", "5 4 2 8"), r"vertex 3's row names vertex 8: allowed are 1 to 7"),
        (PLAIN.replace("5 4 2 1", "5 4 2 0"), r"vertex 3's row names vertex 0"),
        (PLAIN.replace("5 4 2 1", "5 4 2 -1"), r"vertex 3's row holds '-'"),
        (PLAIN.replace("5 4 2 1", "5 4 x 1"), r"vertex 3's row holds 'x'"),
        (PLAIN.replace("5 4 2 1", "5 4 2.0 1"), r"vertex 3's row holds '\.'"),
        (PLAIN.replace("5 4 2 1", f"5 4 2 {2**64 + 1}"), r"vertex 3's row names vertex"),
        (PLAIN.replace("5 4 2 1", "5 4 2 6"), r"an edge is listed at one of its ends only"),
        (WEIGHTED.replace("6 6 4 5", "6 6 4 4"), r"at one of its ends only, or with two weights"),
        (WEIGHTED.replace("6 6 4 5", "6 6 4"), r"vertex 7's row has 3 numbers"),
        (ALL.replace("9 2 1  1", "9"), r"vertex 2's row has"),
        (b"7 11\n5 3 2\n\xff\xfe\n", r"vertex 2's row holds"),
        (b"7 11\n\x00\n", r"vertex 1's row holds"),
    ],
)
def test_malformed(text, said, tmp_path):
    path = written(tmp_path, text)
    with pytest.raises(DataError, match=said) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_gzip_cut_short_or_damaged(tmp_path):
    path = written(tmp_path, PLAIN * 50, "g.graph.gz")
    whole = path.read_bytes()
    for broken in (
        whole[:-4],
        whole[:20],
        whole[:4],
        b"plain text",
        whole[:30] + b"xx" + whole[32:],
    ):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"g.graph.gz: (not a whole gzip file|more than the)"):
            load(path)


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("gnndist.data.files.ALLOWANCE", 1 << 10)
    path = written(tmp_path, "9 9\n" + " " * (1 << 22), "g.graph.gz")
    with pytest.raises(DataError, match="more than 200 times its size"):
        load(path)
