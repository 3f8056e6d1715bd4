"""Small awkward graphs: everything that goes wrong in practice, in a few dozen vertices."""

import numpy as np

from gnndist.graph import Graph

FEATURES, CLASSES = 5, 4


def awkward(
    *, seed: int = 0, directed: bool = False, weighted: bool = False, vertices: int = 40
) -> Graph:
    """Isolated vertices, self-loops, duplicate edges, a hub; labels missing here and there."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, vertices - 4, (2, 3 * vertices))  # the last four are isolated
    loops = np.tile(rng.integers(0, vertices - 4, 3), (2, 1))
    hub = np.stack([np.arange(1, vertices - 4, 2), np.full((vertices - 4) // 2, 3)])
    edge_index = np.concatenate([edges, edges[:, :7], loops, hub], axis=1)
    weight = None
    if weighted:
        weight = rng.uniform(0.1, 2.0, edge_index.shape[1]).astype(np.float32)
        weight[::11] = 0.0
    labels = rng.integers(0, CLASSES, vertices)
    labels[5] = -1
    order = rng.permutation(np.flatnonzero(labels >= 0))
    third = vertices // 3
    return Graph.from_edge_index(
        edge_index,
        num_vertices=vertices,
        edge_weight=weight,
        symmetrize=not directed,
        features=rng.standard_normal((vertices, FEATURES)).astype(np.float32),
        labels=labels,
        num_classes=CLASSES,
        splits={
            "train": np.sort(order[:third]),
            "valid": np.sort(order[third : 2 * third]),
            "test": np.sort(order[2 * third : -2]),
        },
    )


def two_islands(*, directed: bool = False) -> Graph:
    """Two components of 12 vertices, no edge between them; only the first has training labels."""
    rng = np.random.default_rng(7)
    edges = rng.integers(0, 12, (2, 30))
    edge_index = np.concatenate([edges, edges + 12], axis=1)
    return Graph.from_edge_index(
        edge_index,
        num_vertices=24,
        symmetrize=not directed,
        features=rng.standard_normal((24, FEATURES)).astype(np.float32),
        labels=rng.integers(0, CLASSES, 24),
        num_classes=CLASSES,
        splits={
            "train": np.arange(0, 8),
            "valid": np.arange(8, 16),
            "test": np.arange(16, 24),
        },
    )
