"""The store: every edge, feature, label and split survives; nothing half-written is ever seen."""

import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import awkward
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnndist import ConfigError, Graph, StoreError
from gnndist.store import FORMAT_VERSION, Store, check, layout, write_store
from gnndist.store.manifest import FILE


def random_graph(n: int, edges: int, seed: int, **fields: Any) -> Graph:
    rng = np.random.default_rng(seed)
    return Graph.from_edge_index(rng.integers(0, n, (2, edges)), num_vertices=n, **fields)


def full_graph(n: int = 40, seed: int = 0) -> Graph:
    """One of everything: directed, weighted, loops, features, labels, splits, names."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(n)
    return random_graph(
        n,
        5 * n,
        seed,
        edge_weight=rng.normal(size=5 * n).astype(np.float32),
        features=rng.normal(size=(n, 3)).astype(np.float32),
        labels=rng.integers(0, 4, n),
        num_classes=4,
        splits={"train": ids[: n // 2], "valid": ids[n // 2 : -3], "test": ids[-3:]},
        vertex_names=np.array([f"v{i}" for i in range(n)]),
        name="full",
    )


def dense(indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    n = len(indptr) - 1
    out = np.zeros((n, n))
    rows = np.repeat(np.arange(n), np.diff(indptr))
    out[rows, indices] = 1 if weight is None else weight
    return out


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many groups of files and many chunks, on a small graph."""
    monkeypatch.setattr(layout, "GROUP_BYTES", 300)
    monkeypatch.setattr(layout, "CHUNK_BYTES", 200)


def listing(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def same_files(first: Path, second: Path) -> bool:
    names = listing(first)
    equal, *_ = filecmp.cmpfiles(first, second, names, shallow=False)
    return names == listing(second) and equal == names


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    n=st.integers(1, 30),
    density=st.integers(0, 5),
    cells=st.integers(1, 30),
    weighted=st.booleans(),
    pieces=st.booleans(),
    seed=st.integers(0, 100),
)
def test_every_edge_survives_with_its_weight(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    n: int,
    density: int,
    cells: int,
    weighted: bool,
    pieces: bool,
    seed: int,
) -> None:
    weight = np.random.default_rng(seed).normal(size=n * density) if weighted else None
    graph = random_graph(n, n * density, seed, edge_weight=weight)
    with monkeypatch.context() as patch:
        if pieces:
            small_pieces(patch)
        store = write_store(graph, tmp_path / "s", cells=min(cells, n), overwrite=True)
    order = store.original_ids(0, n)
    assert np.array_equal(np.sort(order), np.arange(n))
    indptr, indices, values = store.edges(0, n)
    assert (values is not None) == weighted
    relabelled = dense(graph.indptr, graph.indices, graph.edge_weight)[np.ix_(order, order)]
    assert np.array_equal(dense(indptr, indices, values), relabelled)
    for row in range(n):
        assert (np.diff(indices[indptr[row] : indptr[row + 1]]) > 0).all()
    assert store.cell_offsets[-1] == n
    assert (np.diff(store.cell_offsets) > 0).all()
    assert store.cell_edges.tolist() == np.diff(indptr[store.cell_offsets]).tolist()


def test_rows_of_every_kind_match_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    graph = full_graph()
    store = write_store(graph, tmp_path / "s", cells=6)
    assert store.manifest.groups > 3
    whole = store.edges(0, 40)
    split = np.zeros(40, np.uint8)
    for code, name in enumerate(("train", "valid", "test"), start=1):
        split[graph.splits[name]] = code
    assert graph.features is not None
    assert graph.labels is not None
    assert graph.vertex_names is not None
    for a, b in [(0, 40), (0, 0), (7, 31), (13, 14), (39, 40), (40, 40)]:
        ids = store.original_ids(a, b)
        assert ids.dtype == np.int64
        assert np.array_equal(store.features(a, b).numpy(), graph.features[ids])
        assert np.array_equal(store.labels(a, b), graph.labels[ids])
        assert np.array_equal(store.split(a, b), split[ids])
        assert np.array_equal(store.vertex_names(a, b), graph.vertex_names[ids])
        indptr, indices, weight = store.edges(a, b)
        low, high = whole[0][a], whole[0][b]
        assert np.array_equal(indptr, whole[0][a : b + 1] - low)
        assert np.array_equal(indices, whole[1][low:high])
        assert whole[2] is not None
        assert weight is not None
        assert np.array_equal(weight, whole[2][low:high])
    train = np.add.reduceat(store.split(0, 40) == 1, store.cell_offsets[:-1])
    assert store.cell_train.tolist() == train.tolist()
    assert store.manifest.split_sizes == {"train": 20, "valid": 17, "test": 3}


def test_the_same_graph_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    graph = full_graph(200)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_store(graph, tmp_path / name, method="random", cells=4, seed=seed)
    assert same_files(tmp_path / "a", tmp_path / "b")
    assert not same_files(tmp_path / "a", tmp_path / "c")
    assert Store.open(tmp_path / "a").fingerprint == Store.open(tmp_path / "b").fingerprint
    assert Store.open(tmp_path / "a").fingerprint != Store.open(tmp_path / "c").fingerprint


def test_memory_mapped_arrays_give_the_same_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    graph = full_graph()
    write_store(graph, tmp_path / "plain", cells=4)
    mapped = {}
    for name in ("indptr", "indices", "edge_weight", "features", "labels"):
        np.save(tmp_path / name, getattr(graph, name))
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    write_store(graph.with_(**mapped), tmp_path / "mapped", cells=4)
    assert same_files(tmp_path / "plain", tmp_path / "mapped")


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        (torch.float16, torch.float16),
        (torch.bfloat16, torch.bfloat16),
        (torch.float32, torch.float32),
        (torch.float64, torch.float32),
        (torch.uint8, torch.float32),
    ],
)
def test_feature_dtypes(tmp_path: Path, dtype: torch.dtype, stored: torch.dtype) -> None:
    values = torch.arange(24).reshape(8, 3).to(dtype)
    bits = values.view(torch.int16).numpy().view(np.uint16) if dtype == torch.bfloat16 else None
    graph = random_graph(
        8,
        20,
        0,
        features=values.numpy() if bits is None else bits,
        bfloat16=bits is not None,
    )
    store = write_store(graph, tmp_path / "s")
    assert store.features(0, 8).dtype == stored
    assert torch.equal(store.features(0, 8), values[store.original_ids(0, 8)].to(stored))


def test_multi_label_rows(tmp_path: Path) -> None:
    labels = np.array([[0, 1], [np.nan, 1], [1, 1]], np.float32)
    graph = random_graph(3, 4, 0, labels=labels, num_classes=2, task="multi-label")
    store = write_store(graph, tmp_path / "s")
    found = store.labels(0, 3)
    assert found.dtype == np.float32
    assert np.array_equal(found, labels[store.original_ids(0, 3)], equal_nan=True)


def test_names_that_are_objects_need_no_pickle(tmp_path: Path) -> None:
    graph = random_graph(2, 2, 0, vertex_names=np.array(["a", "longer"], object))
    store = write_store(graph, tmp_path / "s")
    assert sorted(store.vertex_names(0, 2).tolist()) == ["a", "longer"]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    store = write_store(random_graph(4, 4, 0), tmp_path / "s")
    with pytest.raises(StoreError, match="has no features"):
        store.features(0, 4)
    with pytest.raises(StoreError, match="has no labels"):
        store.labels(0, 4)
    with pytest.raises(StoreError, match="rows 0 to 5"):
        store.split(0, 5)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    write_store(full_graph(), tmp_path / "s", cells=4)
    return tmp_path / "s"


def test_verify_accepts_what_was_written(stored: Path) -> None:
    Store.open(stored).verify()


def test_a_file_cut_short(stored: Path) -> None:
    file = stored / "features-00.npy"
    size = file.stat().st_size
    os.truncate(file, size - 5)
    with pytest.raises(StoreError, match=rf"features-00.npy has {size - 5} bytes.* says {size}"):
        Store.open(stored)


def test_a_file_missing(stored: Path) -> None:
    (stored / "indices-00.npy").unlink()
    with pytest.raises(StoreError, match=r"indices-00\.npy is missing"):
        Store.open(stored)
    store = Store.open(stored, partial=True)
    with pytest.raises(StoreError, match=r"indices-00.npy cannot be read"):
        store.edges(0, 1)


@pytest.mark.parametrize("name", ["features-00.npy", "indices-00.npy", "split-00.npy"])
def test_a_file_altered(stored: Path, name: str) -> None:
    file = stored / name
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    store = Store.open(stored)
    says = store.manifest.files[name].xxh3_128
    with pytest.raises(StoreError, match=rf"{name} was altered: its checksum is .* says {says}"):
        store.verify()


def test_verify_reads_only_the_files_of_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    store = write_store(full_graph(), tmp_path / "s", cells=8)
    first, after = store.manifest.group_rows(2)
    file = tmp_path / "s" / "indices-02.npy"
    file.write_bytes(b"x" * file.stat().st_size)
    store.verify(0, first)
    store.verify(after)
    with pytest.raises(StoreError, match="indices-02"):
        store.verify(after - 1, after)


def test_another_format_version(stored: Path) -> None:
    content = json.loads((stored / FILE).read_text())
    content["format_version"] = 99
    (stored / FILE).write_text(json.dumps(content))
    with pytest.raises(StoreError, match=f"format version 99, this gnndist reads {FORMAT_VERSION}"):
        Store.open(stored)


def test_an_altered_manifest(stored: Path) -> None:
    content = json.loads((stored / FILE).read_text())
    content["num_classes"] = 7
    (stored / FILE).write_text(json.dumps(content))
    with pytest.raises(StoreError, match=f"fingerprint is .* says {content['fingerprint']}"):
        Store.open(stored)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"format_version": 1}', "\x00"])
def test_a_broken_manifest(stored: Path, text: str) -> None:
    (stored / FILE).write_text(text)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        Store.open(stored)


def test_no_store_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a store"):
        Store.open(tmp_path)
    with pytest.raises(StoreError, match="is not a store"):
        Store.open(tmp_path / "nowhere")


def test_what_stands_in_the_way_is_kept(stored: Path, tmp_path: Path) -> None:
    graph = random_graph(4, 4, 0)
    with pytest.raises(ConfigError, match=r"not empty.*--overwrite"):
        write_store(graph, stored)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    with pytest.raises(ConfigError, match="not empty and not a store"):
        write_store(graph, other, overwrite=True)
    with pytest.raises(ConfigError, match="is a file"):
        write_store(graph, other / "thesis.tex", overwrite=True)
    assert (other / "thesis.tex").read_text() == "precious"
    assert Store.open(stored).num_vertices == 40


def test_overwrite_replaces_a_store_and_empty_is_fine(stored: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert write_store(random_graph(4, 4, 0), stored, overwrite=True).num_vertices == 4
    assert write_store(random_graph(4, 4, 0), tmp_path / "empty").num_vertices == 4
    assert listing(tmp_path) == ["empty", "s"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_interrupt_leaves_nothing_new(tmp_path: Path, overwrite: bool) -> None:
    path = tmp_path / "s"
    if overwrite:
        write_store(full_graph(), path)

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "writing the store":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_store(random_graph(9, 9, 0), path, overwrite=overwrite, progress=interrupt)
    assert listing(tmp_path) == (["s"] if overwrite else [])
    if overwrite:
        Store.open(path).verify()
        assert Store.open(path).num_vertices == 40


KILLED = """
import os, signal, sys
import numpy as np
from gnndist import Graph
from gnndist.store import write_store

def kill(stage, done, total):
    if stage == "writing the store":
        os.kill(os.getpid(), signal.SIGKILL)

graph = Graph.from_edge_index(np.zeros((2, 1), np.int64), num_vertices=3)
write_store(graph, sys.argv[1], progress=kill)
"""


def test_a_killed_writer_leaves_no_store_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    path = tmp_path / "s"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not path.exists()
    assert len(listing(tmp_path)) == 1
    write_store(random_graph(4, 4, 0), path)
    assert listing(tmp_path) == ["s"]


def test_a_store_moves_and_has_no_pickle(stored: Path, tmp_path: Path) -> None:
    shutil.move(stored, tmp_path / "elsewhere")
    Store.open(tmp_path / "elsewhere").verify()
    for file in (tmp_path / "elsewhere").glob("*.npy"):
        np.load(file, allow_pickle=False)


def test_features_and_edges_are_never_in_memory_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, width, degree = 20_000, 500, 40
    for module in (layout, check):
        monkeypatch.setattr(module, "CHUNK_BYTES", 1 << 20)
    shape = (n, width)
    features = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype="<f4", shape=shape)
    features[:] = 1
    indices = np.lib.format.open_memmap(
        tmp_path / "i.npy", mode="w+", dtype="<i4", shape=(n * degree,)
    )
    neighbours = (np.arange(n)[:, None] + np.arange(degree)) % n
    indices[:] = np.sort(neighbours, axis=1).ravel()
    graph = Graph(
        indptr=np.arange(n + 1) * degree, indices=indices, features=features, symmetric=True
    )
    del neighbours
    tracemalloc.start()
    write_store(graph, tmp_path / "s", method="natural", cells=8)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < features.nbytes / 3
    Store.open(tmp_path / "s").verify()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot make .*file"):
        write_store(awkward(), tmp_path / "file" / "store")
