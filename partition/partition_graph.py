"""A graph of your own → a store, from Python.

    python partition/partition_graph.py stores/mine

Replace `my_graph` by your own arrays. What is in the store is then trained with

    gnndist train stores/mine --ranks 2 --out runs/mine
"""

import sys
from pathlib import Path

import numpy as np

from gnndist import GnndistError, Graph
from gnndist.store import write_store


def my_graph() -> Graph:
    """1,000 vertices in five groups, most edges within a group."""
    rng = np.random.default_rng(0)
    vertices, classes = 1_000, 5
    labels = rng.integers(0, classes, vertices)

    # Edges: a 2 × E array, source above destination. Equal edges are merged, loops are kept.
    source = rng.integers(0, vertices, 20_000)
    destination = rng.integers(0, vertices, 20_000)
    kept = (labels[source] == labels[destination]) | (rng.random(20_000) < 0.05)
    edge_index = np.stack([source[kept], destination[kept]])

    # Features: a row a vertex. float32, float16, or np.load("x.npy", mmap_mode="r"): arrays that
    # are memory-mapped are read in pieces, so they may be larger than the memory.
    features = np.eye(classes, dtype=np.float32)[labels]
    features += rng.normal(scale=1.5, size=features.shape).astype(np.float32)

    # Splits: ids of the vertices to train on, to choose the epoch by, and to test.
    shuffled = rng.permutation(vertices)
    splits = {"train": shuffled[:600], "valid": shuffled[600:800], "test": shuffled[800:]}

    return Graph.from_edge_index(
        edge_index,
        num_vertices=vertices,
        symmetrize=True,  # add the reverse of every edge
        # edge_weight=...,  a number an edge, if yours have weights
        features=features,
        labels=labels,  # an integer a vertex, -1 for none; a column a class for multi-label
        num_classes=classes,
        splits=splits,
        name="mine",
    )
    # A scipy matrix will do as well: Graph.from_scipy(matrix, features, labels, ...), where the
    # entry (i, j) is an edge from i to j.


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    try:
        store = write_store(my_graph(), path, overwrite=True)
    except GnndistError as error:
        sys.exit(f"error: {error}")
    print(f"{path}: {store.num_vertices:,} vertices, {store.num_edges:,} edges")


if __name__ == "__main__":
    main()
