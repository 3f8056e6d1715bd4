"""Train, validation and test vertices where the data names none: pure functions of a seed."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gnndist.errors import ConfigError, DataError
from gnndist.graph import SPLITS, Array, Graph

Splits = Mapping[str, Array]
VALID_PER_CLASS = 30
"""validation vertices a class beside `per-class:N` training ones (Shchur et al. 2018)"""


@dataclass(frozen=True, kw_only=True)
class SplitScheme:
    """How vertices are dealt out: a number of training vertices a class, or 60/20/20."""

    per_class: int | None = None
    """training vertices a class, with 30 a class for validation and the rest for test;
    None: 60 % / 20 % / 20 % of the labelled vertices"""

    @classmethod
    def parse(cls, text: str) -> "SplitScheme":
        """``random`` or ``per-class:N``. ConfigError otherwise."""
        if text == "random":
            return cls()
        kind, _, number = text.partition(":")
        if kind == "per-class" and number.isascii() and number.isdigit() and int(number) > 0:
            return cls(per_class=int(number))
        raise ConfigError(f"split {text!r}: allowed are 'random' and 'per-class:N' with N ≥ 1")


def make_split(graph: Graph, scheme: SplitScheme, seed: int) -> Splits:
    """Splits of the labelled vertices of `graph` by `scheme`, for one seed always the same."""
    if graph.labels is None:
        raise DataError(f"{graph.name}: has no labels, so there is nothing to split")
    if scheme.per_class is not None:
        if graph.task != "single-label":
            raise ConfigError(
                f"split 'per-class:{scheme.per_class}': {graph.name} is {graph.task}; "
                "allowed for it is 'random'"
            )
        return per_class_split(graph.labels, per_class=scheme.per_class, seed=seed)
    return random_split(labelled(graph), seed=seed)


def labelled(graph: Graph) -> Array:
    """Ids of the vertices with a label (multi-label and regression: with any)."""
    labels = graph.labels
    if labels is None:
        return np.zeros(0, np.int64)
    given = labels >= 0 if graph.task == "single-label" else ~np.isnan(labels).all(axis=1)
    return np.flatnonzero(given)


def shuffled(ids: Array, seed: int) -> Array:
    """`ids` in an order that depends on their number and `seed` alone.

    Sorts by Philox's raw stream, which numpy promises never to change, unlike its shuffle.
    """
    if not 0 <= seed < 2**64:
        raise ConfigError(f"split seed {seed}: allowed are 0 to 2^64 − 1")
    keys = np.random.Philox(key=seed).random_raw(len(ids))
    return ids[np.argsort(np.asarray(keys, np.uint64), kind="stable")]


def random_split(ids: Array, *, seed: int) -> Splits:
    """60 % of `ids` for training, 20 % for validation, the rest for test; each ascending."""
    order = shuffled(ids, seed)
    first, second = (3 * len(ids)) // 5, (4 * len(ids)) // 5
    parts = np.split(order, [first, second])
    return {name: np.sort(part).astype(np.int64) for name, part in zip(SPLITS, parts, strict=True)}


def per_class_split(labels: Array, *, per_class: int, seed: int) -> Splits:
    """`per_class` training and 30 validation vertices of every class, the rest for test.

    A class with too few vertices for both gives its first ones to training.
    """
    order = shuffled(np.flatnonzero(labels >= 0), seed)
    # Rank of each vertex within its class, in the shuffled order.
    by_class = np.argsort(labels[order], kind="stable")
    sizes = np.bincount(labels[order])
    rank = np.empty(len(order), np.int64)
    rank[by_class] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    part = np.searchsorted([per_class, per_class + VALID_PER_CLASS], rank, side="right")
    return {
        name: np.sort(order[part == number]).astype(np.int64) for number, name in enumerate(SPLITS)
    }
