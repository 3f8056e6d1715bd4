"""Tiny OGB data sets in the layout that the real ones have on disk, and a machine offline."""

import builtins
import gzip
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[Any]
NAMES = ("ogbn-arxiv", "ogbn-products", "ogbn-proteins", "ogbn-papers100M", "ogbn-mag")
_SPLIT = {
    "ogbn-arxiv": "time",
    "ogbn-products": "sales_ranking",
    "ogbn-proteins": "species",
    "ogbn-papers100M": "time",
    "ogbn-mag": "time",
}


@dataclass(frozen=True, kw_only=True)
class TinyOgb:
    """What was written: N vertices, E edges, F features."""

    folder: Path
    edges: Array
    """[E, 2] source, destination"""
    features: Array | None
    """[N, F]; None: ogbn-proteins"""
    edge_features: Array | None
    """[E, 8], ogbn-proteins only"""
    labels: Array
    """[N, 1], or [N, 112] for ogbn-proteins; NaN unlabelled (papers100M)"""
    splits: dict[str, Array] = field(default_factory=dict)


def write_ogb(name: str, root: Path, *, vertices: int = 60, edges: int = 240) -> TinyOgb:
    """Write a random graph as the data set `name` into ``ROOT/ogbn_…``."""
    rng = np.random.default_rng(sum(name.encode()))
    folder = root / name.replace("-", "_")
    # The last vertex stays isolated; edge 0 is a loop and edges 1 and 2 are equal.
    pairs = rng.integers(0, vertices - 1, (edges, 2))
    pairs[0], pairs[1] = (3, 3), pairs[2]
    proteins = name == "ogbn-proteins"
    features = None if proteins else rng.standard_normal((vertices, 6)).round(6).astype("f4")
    edge_features = rng.random((edges, 8)).round(3).astype("f4") if proteins else None
    if proteins:
        labels = rng.integers(0, 2, (vertices, 112))
    else:
        labels = rng.integers(0, 4, (vertices, 1))
    order = rng.permutation(vertices)
    parts = np.split(order, [vertices // 2, 3 * vertices // 4])
    splits = dict(zip(("train", "valid", "test"), parts, strict=True))
    if name == "ogbn-papers100M":
        features = features.astype("f2")
        labels = labels.astype("f4")
        splits = {k: np.sort(v[: len(v) // 2]) for k, v in splits.items()}
        unlabelled = np.ones(vertices, bool)
        unlabelled[np.concatenate(list(splits.values()))] = False
        labels[unlabelled] = np.nan
    tiny = TinyOgb(
        folder=folder,
        edges=pairs,
        features=features,
        edge_features=edge_features,
        labels=labels,
        splits=splits,
    )
    _write(name, tiny)
    return tiny


def _write(name: str, tiny: TinyOgb) -> None:
    folder, raw = tiny.folder, tiny.folder / "raw"
    vertex = "paper" if name == "ogbn-mag" else ""
    release = 2 if vertex else 1
    for path in (raw, folder / "mapping", folder / "processed"):
        path.mkdir(parents=True)
    (folder / f"RELEASE_v{release}.txt").write_text("")
    for part, ids in tiny.splits.items():
        write_table(folder / "split" / _SPLIT[name] / vertex / f"{part}.csv.gz", ids[:, None])
    if name == "ogbn-papers100M":
        _write_binary(raw, tiny)
    elif vertex:
        _write_mag(raw, tiny)
        has_split = folder / "split" / "time" / "nodetype-has-split.csv.gz"
        write_text(has_split, "author,paper\nFalse,True\n")
    else:
        write_table(raw / "edge.csv.gz", tiny.edges)
        write_table(raw / "num-node-list.csv.gz", np.array([[len(tiny.labels)]]))
        write_table(raw / "num-edge-list.csv.gz", np.array([[len(tiny.edges)]]))
        write_table(raw / "node-label.csv.gz", tiny.labels)
        if tiny.features is not None:
            write_table(raw / "node-feat.csv.gz", tiny.features)
        if tiny.edge_features is not None:
            write_table(raw / "edge-feat.csv.gz", tiny.edge_features)
            write_table(raw / "node_species.csv.gz", np.full((len(tiny.labels), 1), 9606))
        if name == "ogbn-arxiv":
            write_table(raw / "node_year.csv.gz", np.full((len(tiny.labels), 1), 2017))


def _write_binary(raw: Path, tiny: TinyOgb) -> None:
    np.savez_compressed(
        raw / "data.npz",
        edge_index=tiny.edges.T.astype(np.int64),
        node_feat=tiny.features,
        node_year=np.full((len(tiny.labels), 1), 2017),
        num_nodes_list=np.array([len(tiny.labels)]),
        num_edges_list=np.array([len(tiny.edges)]),
    )
    np.savez_compressed(raw / "node-label.npz", node_label=tiny.labels)


def _write_mag(raw: Path, tiny: TinyOgb) -> None:
    papers = len(tiny.labels)
    types = "author,field_of_study,institution,paper"
    write_text(raw / "num-node-dict.csv.gz", f"{types}\n7,5,2,{papers}\n")
    write_text(raw / "nodetype-has-label.csv.gz", f"{types}\nFalse,False,False,True\n")
    write_text(raw / "triplet-type-list.csv.gz", "paper,cites,paper\nauthor,writes,paper\n")
    relations = raw / "relations"
    for relation, pairs in (
        ("paper___cites___paper", tiny.edges),
        ("author___writes___paper", np.array([[0, 1], [6, 2]])),
    ):
        write_table(relations / relation / "edge.csv.gz", pairs)
        write_table(relations / relation / "num-edge-list.csv.gz", np.array([[len(pairs)]]))
        write_table(relations / relation / "edge_reltype.csv.gz", np.zeros((len(pairs), 1), int))
    assert tiny.features is not None
    write_table(raw / "node-feat" / "paper" / "node-feat.csv.gz", tiny.features)
    write_table(raw / "node-feat" / "paper" / "node_year.csv.gz", np.full((papers, 1), 2017))
    write_table(raw / "node-label" / "paper" / "node-label.csv.gz", tiny.labels)


def write_table(path: Path, rows: Array) -> None:
    """A gzipped table without a header, as OGB writes them."""
    kind = "%d" if rows.dtype.kind in "iu" else "%.6f"
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, rows, fmt=kind, delimiter=",")


def write_text(path: Path, text: str) -> None:
    """A gzipped text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.write(text)


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any socket, and any question to a person, fails the test."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a test that must not touch the network or ask did")

    for owner, name in (
        (socket, "socket"),
        (socket, "create_connection"),
        (socket, "getaddrinfo"),
        (builtins, "input"),
    ):
        monkeypatch.setattr(owner, name, refuse)
