"""METIS with two balance constraints: work, and training vertices.

pymetis passes one constraint on, but its extension module holds all of METIS and, on Linux, lets
its C functions be called. Where it does not, the caller makes do with one constraint.
"""

import ctypes
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

WORK_TOLERANCE = 1.001
"""as METIS's own for one constraint"""
TRAIN_TOLERANCE = 1.2
"""looser, because few training vertices in tight clusters cost much halo to spread"""
TRAIN_SHARE = 10
"""Weight of all training vertices in the second constraint, in units of all vertices' 1 each.

The 1 each keeps cells from running empty where there are fewer training vertices than cells."""


def bisect_balanced(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    weight: NDArray[np.int64],
    train: NDArray[np.int64],
    edge_weight: NDArray[np.int64] | None,
    cells: int,
    seed: int,
) -> NDArray[np.int64] | None:
    """The cell of each vertex by recursive bisection; None where METIS is out of reach or fails.

    Parameters
    ----------
    indptr, indices:
        symmetric pattern without loops.
    weight:
        [N] work.
    train:
        [N] 1 on training vertices, else 0 (or how many a vertex stands for); not all 0.
    edge_weight:
        one for each of `indices`, or None for 1 each.
    cells, seed:
        as in `Problem`.
    """
    reached = _reach_metis(seed)
    if reached is None:
        return None
    recursive, options = reached
    n = len(weight)
    each = max(round(TRAIN_SHARE * n / int(train.sum())), 1)
    weights = np.stack([weight, 1 + each * train.astype(np.int64)], axis=1)
    tolerance = np.array([WORK_TOLERANCE, TRAIN_TOLERANCE], np.float32)
    cut, cell = np.zeros(1, np.int64), np.empty(n, np.int64)
    status = recursive(
        ctypes.byref(ctypes.c_int64(n)),
        ctypes.byref(ctypes.c_int64(weights.shape[1])),
        _at(indptr),
        _at(indices),
        _at(weights),
        None,
        None if edge_weight is None else _at(edge_weight),
        ctypes.byref(ctypes.c_int64(cells)),
        None,
        _at(tolerance),
        _at(options),
        _at(cut),
        _at(cell),
    )
    return cell if status == 1 else None


def _reach_metis(seed: int) -> tuple[Callable[..., int], NDArray[np.int64]] | None:
    """METIS_PartGraphRecursive and its options, from inside pymetis; None where they are not."""
    import pymetis

    if pymetis.zero_copy_dtype() != np.int64:
        return None
    try:
        recursive = ctypes.CDLL(pymetis._internal.__file__).METIS_PartGraphRecursive
        settings = pymetis.Options(seed=seed)
        options = np.array([settings._get(i) for i in range(type(settings)._len())], np.int64)
    except (AttributeError, OSError):
        return None
    return recursive, options


def _at(array: NDArray[np.int64] | NDArray[np.float32]) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)
