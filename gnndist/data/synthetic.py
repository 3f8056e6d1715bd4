"""Synthetic graphs of the size and shape of well-known ones, at any scale.

``generate("arxiv")`` has ogbn-arxiv's counts, a power-law degree and nested communities whose cut
was fitted so that METIS leaves about the halo it leaves on the real graph. Classes and features
follow the communities with noise: a GNN learns something on them that an MLP does not, and
nothing reaches 100 %. Accuracies on them say nothing about the real data sets.
"""

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnndist.data.synthetic_edges import nested_edges
from gnndist.errors import DataError
from gnndist.graph import EdgeCounts, Graph

Array = NDArray[Any]
SMALLEST = 64
"""vertices a synthetic graph has at least"""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a synthetic graph imitates, at scale 1."""

    vertices: int
    edges: int
    """undirected, each counted once"""
    features: int
    classes: int
    split: tuple[float, float, float]
    """shares of the vertices in train, valid and test; all of them are in one"""
    cuts: tuple[float, ...]
    """share of the edges that joins the two halves of the whole, of a half, of a quarter, …"""
    inside: float = 0.5
    """share of the other edges that stay inside a leaf"""
    tail: float = 2.3
    """exponent of the power law of the weights: P(weight > w) ~ w^(1 − tail)"""
    heaviest: float = 20_000.0
    """largest weight of a vertex over the smallest"""
    mislabelled: float = 0.2
    """share of the vertices whose label is a random class"""
    noise: float = 5.0
    """standard deviation of a feature's noise; that of a class centre is 1"""


RECIPES = {
    "arxiv": Recipe(
        vertices=169_343,
        edges=1_166_243,
        features=128,
        classes=40,
        split=(0.537, 0.176, 0.287),
        cuts=(0.018, 0.034, 0.036, 0.045),
    ),
    "products": Recipe(
        vertices=2_449_029,
        edges=61_859_140,
        features=100,
        classes=47,
        split=(0.0803, 0.0161, 0.9036),
        cuts=(0.01, 0.02, 0.03, 0.04),
    ),
    "reddit": Recipe(
        vertices=232_965,
        edges=57_307_946,
        features=602,
        classes=41,
        split=(0.659, 0.102, 0.239),
        cuts=(0.01, 0.02, 0.03, 0.04),
        inside=0.75,
        noise=12.0,
    ),
}


def generate(name: str, *, scale: float = 1.0, seed: int = 0) -> Graph:
    """The synthetic graph `name` with `scale` times its vertices and edges.

    Parameters
    ----------
    name:
        ``arxiv``, ``products`` or ``reddit``.
    scale:
        factor on vertices and edges; features, classes and split shares stay. A graph made so
        small that its mean degree exceeds a sixteenth of its vertices gets fewer edges.
    seed:
        ≥ 0; the same name, scale and seed give the same graph, array for array.

    Returns
    -------
    Graph
        symmetric, unweighted, no self-loops, no isolated vertex; int32 `indices`, float32
        `features` [N, F], int64 `labels` [N]; ids in random order. Peak memory is about twice
        the graph's own; full-size ``products`` takes about a minute.

    Raises
    ------
    DataError
        an unknown name, a negative seed, a scale that leaves fewer than 64 vertices or that
        needs ids beyond 32 bits.
    """
    recipe = RECIPES.get(name)
    if recipe is None:
        raise DataError(f"synthetic graph {name!r}: allowed are {', '.join(RECIPES)}")
    if seed < 0:
        raise DataError(f"seed {seed}: allowed are integers from 0")
    vertices = recipe.vertices * scale
    if not SMALLEST <= vertices < 2**31:
        raise DataError(
            f"scale {scale} gives {vertices:.3g} vertices: "
            f"allowed for {name} are {SMALLEST / recipe.vertices:.2g} "
            f"to {2**31 / recipe.vertices:.3g}"
        )
    n = round(vertices)
    edges = min(max(round(recipe.edges * scale), 2 * n), n * n // 32)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    public = rng.permutation(n).astype(np.int32)
    cuts = _cuts(recipe, n, edges)
    indptr, indices = nested_edges(
        _weights(recipe, n, rng), public, edges=edges, cuts=cuts, key=int(rng.integers(2**63))
    )
    labels, features = _classes_and_features(recipe, public, 2 ** len(cuts), rng)
    return Graph(
        indptr=indptr,
        indices=indices,
        features=features,
        labels=labels,
        num_classes=recipe.classes,
        splits=_splits(recipe, n, rng),
        symmetric=True,
        name=f"synthetic-{name}" if scale == 1 else f"synthetic-{name}-{scale:g}",
        edge_counts=EdgeCounts(read=edges, reversed=edges),
    )


def _weights(recipe: Recipe, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """[N] weights of a power law cut off at `heaviest`; mean 1."""
    floor = recipe.heaviest ** (1 - recipe.tail)
    weight = (floor + (1 - floor) * rng.random(n)) ** (1 / (1 - recipe.tail))
    scaled: NDArray[np.float64] = weight / weight.mean()
    return scaled


def _cuts(recipe: Recipe, n: int, edges: int) -> NDArray[np.float64]:
    """Shares of the edges by level: the recipe's, then what is left to deeper levels, evenly.

    Leaves have room for a few times a mean vertex's neighbours.
    """
    levels = max(int(np.log2(n / max(4 * edges / n, 64))), 1)
    top = np.array(recipe.cuts[:levels])
    deeper = levels - len(top)
    return np.concatenate(
        [top, np.full(deeper, (1 - top.sum()) * (1 - recipe.inside) / max(deeper, 1))]
    )


def _classes_and_features(
    recipe: Recipe, public: NDArray[np.int32], leaves: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """int64 [N] labels and float32 [N, F] features, both constant on runs but for noise.

    The hidden order is cut into runs of very different lengths, up to four a class, where there
    are enough leaves between two of them: a run has its class's centre and half as much again of
    its own.
    """
    n, classes = len(public), recipe.classes
    runs = min(max(leaves // 2, classes), 4 * classes)
    ends = np.arange(1, leaves) * n // leaves if leaves > runs else np.arange(1, n)
    bounds = np.sort(rng.choice(ends, min(runs, len(ends) + 1) - 1, replace=False))
    runs = len(bounds) + 1
    run = np.searchsorted(bounds, np.arange(n), side="right")
    of_run = rng.permutation(np.arange(runs) % classes)
    wrong = rng.random(n) < recipe.mislabelled
    labels = np.empty(n, np.int64)
    labels[public] = np.where(wrong, rng.integers(0, classes, n), of_run[run])
    centre = rng.standard_normal((classes, recipe.features), np.float32)[of_run]
    centre += 0.5 * rng.standard_normal(centre.shape, np.float32)
    run_by_id = np.empty(n, np.int32)
    run_by_id[public] = run
    features = np.empty((n, recipe.features), np.float32)
    for start in range(0, n, 65_536):
        rows = features[start : start + 65_536]
        rng.standard_normal(dtype=np.float32, out=rows)
        rows *= np.float32(recipe.noise)
        rows += centre[run_by_id[start : start + 65_536]]
    # Inputs of about unit variance, as data sets come.
    features /= np.float32(np.hypot(recipe.noise, 1.1))
    return labels, features


def _splits(recipe: Recipe, n: int, rng: np.random.Generator) -> dict[str, NDArray[np.int64]]:
    """Disjoint ascending ids that cover all vertices."""
    order = rng.permutation(n).astype(np.int64)
    train = round(recipe.split[0] * n)
    valid = train + round(recipe.split[1] * n)
    return {
        "train": np.sort(order[:train]),
        "valid": np.sort(order[train:valid]),
        "test": np.sort(order[valid:]),
    }
