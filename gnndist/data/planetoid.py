"""Cora, CiteSeer and PubMed in the raw files of Planetoid (Yang et al. 2016), public split."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gnndist.data.building import build
from gnndist.data.features import densify
from gnndist.data.files import malformed, must_exist, must_fit
from gnndist.data.inert_pickle import read_pickle
from gnndist.data.labels import one_hot_to_classes
from gnndist.errors import DataError
from gnndist.graph import Array, Graph

VALID = 500
"""the vertices after the training ones that Kipf & Welling (2017) validate on"""


def read_planetoid(folder: Path, name: str, *, symmetrize: bool) -> Graph:
    """The graph in ``ind.NAME.{x,tx,allx,y,ty,ally,graph,test.index}`` of `folder`.

    As Kipf's loader: the test rows are put where ``test.index`` says; ids in its range that it
    leaves out (CiteSeer's 15 isolated vertices) get zero features and no label; training is on
    the rows of ``y``, validation on the 500 after them.
    """
    stem = folder / f"ind.{name}"
    known, test = _matrix(stem, "allx"), _matrix(stem, "tx")
    known_y, test_y = _one_hot(stem, "ally", known), _one_hot(stem, "ty", test)
    train = len(_array(stem, "y"))
    at = _test_index(stem, len(test_y), known.shape[0])
    if known.shape[1] != test.shape[1] or known_y.shape[1] != test_y.shape[1]:
        raise DataError(
            f"{stem}.tx: {test.shape[1]} features and {test_y.shape[1]} classes, but "
            f"{stem}.allx has {known.shape[1]} and {known_y.shape[1]}"
        )
    if train + VALID > known.shape[0]:
        raise DataError(
            f"{stem}.y: {train} training vertices and {VALID} for validation are more than "
            f"the {known.shape[0]} rows of {stem}.allx"
        )
    n = max(known.shape[0], int(at.max(initial=-1)) + 1)
    features = densify(_placed(known, test, at, n, stem))
    labels = np.full(n, -1, np.int64)
    labels[: len(known_y)] = one_hot_to_classes(known_y, f"{stem}.ally")
    labels[at] = one_hot_to_classes(test_y, f"{stem}.ty")
    return build(
        _edges(stem),
        _part(stem, "graph"),
        num_vertices=n,
        symmetrize=symmetrize,
        features=features,
        labels=labels,
        num_classes=known_y.shape[1],
        splits={
            "train": np.arange(train),
            "valid": np.arange(train, train + VALID),
            "test": np.sort(at),
        },
        name=name,
    )


def _placed(known: Any, test: Any, at: Array, n: int, stem: Path) -> sp.csr_array:
    """`known` in the first rows of an [n, F] matrix and row i of `test` in row ``at[i]``."""
    must_fit(4 * n * known.shape[1], stem.with_name(f"{stem.name}.allx"), "its features")
    lower = test.tocoo()
    upper = known.tocoo()
    rows = np.concatenate([upper.row, at[lower.row]])
    columns = np.concatenate([upper.col, lower.col])
    data = np.concatenate([upper.data, lower.data])
    return sp.csr_array(sp.coo_array((data, (rows, columns)), shape=(n, known.shape[1])))


def _part(stem: Path, part: str) -> Path:
    return stem.with_name(f"{stem.name}.{part}")


def _matrix(stem: Path, part: str) -> Any:
    path = _part(stem, part)
    matrix = read_pickle(path)
    if not sp.issparse(matrix):
        raise DataError(f"{path}: holds {type(matrix).__name__}: allowed is a sparse matrix")
    return matrix


def _array(stem: Path, part: str) -> Array:
    path = _part(stem, part)
    array = read_pickle(path)
    if not (isinstance(array, np.ndarray) and array.ndim == 2 and array.dtype.kind in "iufb"):
        raise DataError(f"{path}: allowed is a matrix of numbers, a row of classes a vertex")
    return array


def _one_hot(stem: Path, part: str, features: Any) -> Array:
    array = _array(stem, part)
    if len(array) != features.shape[0]:
        raise DataError(
            f"{_part(stem, part)}: {len(array)} rows of labels, "
            f"but {features.shape[0]} rows of features"
        )
    return array


def _test_index(stem: Path, count: int, known: int) -> Array:
    """The ids of the rows of ``tx``: one a line, past the rows of ``allx``."""
    path = must_exist(_part(stem, "test.index"), "list of test vertices")
    with malformed(path, "a list of vertex ids, one a line", ValueError, OverflowError):
        ids = np.array(path.read_text("ascii").split()).astype(np.int64)
    if ids.shape != (count,):
        raise DataError(f"{path}: {ids.shape} ids, but {_part(stem, 'ty')} has {count} rows")
    wrong = (ids < known) | (ids >= known + 10 * count)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"{path}: line {row + 1}: id {ids[row]}: allowed are ids from {known} on")
    values, times = np.unique(ids, return_counts=True)
    if (times > 1).any():
        raise DataError(f"{path}: id {values[np.argmax(times > 1)]} occurs more than once")
    return ids


def _edges(stem: Path) -> Array:
    """[2, E] from the dict of lists of neighbours in ``graph``."""
    path = _part(stem, "graph")
    lists = read_pickle(path)
    if not isinstance(lists, dict) or not all(isinstance(v, list) for v in lists.values()):
        raise DataError(f"{path}: allowed is a dict from each vertex to the list of its neighbours")
    if not all(type(v) is int for v in chain(lists, *lists.values())):
        raise DataError(f"{path}: allowed are vertex ids that are whole numbers")
    try:
        keys = np.array(list(lists), np.int64)
        neighbours = np.array(list(chain.from_iterable(lists.values())), np.int64)
    except OverflowError as error:
        raise DataError(f"{path}: a vertex id is larger than 2^63") from error
    return np.stack([np.repeat(keys, [len(v) for v in lists.values()]), neighbours])
