"""scikit-learn's handwritten digits as a graph: what the demonstration trains on, no download."""

import numpy as np

from gnndist.graph import Graph

NEIGHBOURS = 10


def read_digits(*, symmetrize: bool) -> Graph:
    """1,797 images of 8 × 8 pixels, each joined to by its 10 nearest by Euclidean distance.

    Features are pixels from 0 to 1, labels the digits. There is no split of its own.
    """
    from sklearn.datasets import load_digits
    from sklearn.neighbors import NearestNeighbors

    pixels, digits = load_digits(return_X_y=True)
    search = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(pixels)
    nearest = search.kneighbors(return_distance=False)  # without the image itself
    reader = np.repeat(np.arange(len(pixels)), NEIGHBOURS)
    return Graph.from_edge_index(
        np.stack([nearest.ravel().astype(np.int64), reader]),
        num_vertices=len(pixels),
        symmetrize=symmetrize,
        features=(pixels / 16).astype(np.float32),
        labels=digits.astype(np.int64),
        num_classes=10,
        name="digits",
    )
