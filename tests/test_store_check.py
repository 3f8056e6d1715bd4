"""A graph that contradicts itself makes no store: the message names what and where."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnndist import DataError, Graph
from gnndist.store import check, write_store

N = 5


def graph(**changes: Any) -> Graph:
    edges = np.array([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
    base = Graph.from_edge_index(
        edges,
        num_vertices=N,
        edge_weight=np.arange(1, 7),
        features=np.ones((N, 2), np.float32),
        labels=np.array([0, 1, 2, 0, -1]),
        num_classes=3,
        splits={"train": np.array([0, 1]), "test": np.array([2])},
    )
    return base.with_(**changes)


def changed(array: np.ndarray, at: Any, value: Any) -> np.ndarray:
    array = array.copy()
    array[at] = value
    return array


FEATURES = np.ones((N, 2), np.float32)
INDICES = graph().indices
BFLOAT16_INF = np.full((N, 2), 0x7F80, np.uint16)
MULTI = np.zeros((N, 3), np.float32)

BAD: list[tuple[dict[str, Any], str]] = [
    ({"features": FEATURES[:3]}, "features has 3 rows: the graph has 5 vertices"),
    ({"features": FEATURES[:, 0]}, r"features has shape \(5,\)"),
    ({"features": changed(FEATURES, (3, 1), np.nan)}, "feature 1 of vertex 3 is nan"),
    ({"features": changed(FEATURES, (4, 0), -np.inf)}, "feature 0 of vertex 4 is -inf"),
    ({"features": np.full((N, 2), 1e300)}, "feature 0 of vertex 0 is 1e.300.*float32"),
    ({"features": BFLOAT16_INF, "bfloat16": True}, "feature 0 of vertex 0"),
    ({"features": FEATURES, "bfloat16": True}, "come as uint16, not float32"),
    ({"features": np.array([["a", "b"]] * N)}, "features has dtype"),
    ({"labels": np.array([0, 1])}, "labels has 2 rows"),
    ({"labels": np.array([0, 1, 2, 3, 0])}, "vertex 3 has label 3: allowed are 0 to 2"),
    ({"labels": np.array([0, 1, -2, 0, 0])}, "vertex 2 has label -2"),
    ({"labels": np.zeros(N, np.float32)}, "labels has dtype float32"),
    ({"labels": MULTI}, r"labels has shape \(5, 3\)"),
    ({"labels": MULTI[:, :2], "task": "multi-label"}, "labels have 2 columns: num_classes is 3"),
    ({"labels": changed(MULTI, (2, 1), 2), "task": "multi-label"}, "label 1 of vertex 2 is 2.0"),
    ({"labels": changed(MULTI, (2, 1), np.inf), "task": "regression"}, "label 1 of vertex 2"),
    ({"splits": {"train": np.array([5])}}, "split 'train' names vertex 5: allowed are ids 0 to 4"),
    ({"splits": {"train": np.array([-1])}}, "split 'train' names vertex -1"),
    ({"splits": {"train": np.array([1, 1])}}, "split 'train' names vertex 1 twice"),
    ({"splits": {"dev": np.array([1])}}, "split 'dev': allowed are train, valid, test"),
    ({"splits": {"train": np.array([0.5])}}, "split 'train' has shape"),
    (
        {"splits": {"train": np.array([0, 1]), "test": np.array([1])}},
        "vertex 1 is in the splits 'train' and 'test'",
    ),
    ({"splits": {"valid": np.array([4])}}, "vertex 4 is in the split 'valid' but has no label"),
    ({"indices": changed(INDICES, 3, 7)}, "joins vertex 7 to 2: allowed are ids 0 to 4"),
    ({"indices": changed(INDICES, 0, -1)}, "joins vertex -1 to 0"),
    ({"indices": changed(INDICES, 3, INDICES[2])}, "row 2 of the adjacency"),
    ({"indices": INDICES[:-1]}, "indptr runs from 0 to 6"),
    ({"indptr": np.array([0, 2, 1, 4, 5, 6])}, "indptr"),
    ({"edge_weight": np.ones(3, np.float32)}, r"edge_weight has shape \(3,\)"),
    ({"edge_weight": np.array([1, 1, np.inf, 1, 1, 1])}, "edge 2 has weight inf"),
    ({"vertex_names": np.array(["a"])}, "vertex_names has 1 rows"),
    ({"vertex_names": np.zeros(N)}, "vertex_names has dtype float64"),
]


@pytest.mark.parametrize(("changes", "said"), BAD, ids=[said for _, said in BAD])
@pytest.mark.parametrize("chunk", [1, check.CHUNK_BYTES])
def test_bad_graphs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    said: str,
    chunk: int,
) -> None:
    monkeypatch.setattr(check, "CHUNK_BYTES", chunk)
    with pytest.raises(DataError, match=said):
        write_store(graph(**changes), tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_a_good_graph_passes_in_any_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    check.check_graph(graph())
    monkeypatch.setattr(check, "CHUNK_BYTES", 1)
    check.check_graph(graph())


def test_no_vertices(tmp_path: Path) -> None:
    empty = Graph.from_edge_index(np.empty((2, 0), np.int64), num_vertices=0)
    with pytest.raises(DataError, match="no vertices"):
        write_store(empty, tmp_path / "s")
