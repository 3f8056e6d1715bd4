"""The user's own cells: an array, or a file that holds one."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnndist.errors import ConfigError, DataError
from gnndist.graph import Array
from gnndist.partitioning.cells import order_by_cell


def read_assignment(path: Path) -> Array:
    """The array in a ``.npy`` file.

    Raises
    ------
    DataError
        no such file, or not a ``.npy`` file of plain numbers.
    """
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: not a .npy file of integers: {error}") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: holds several arrays: allowed is a .npy file with one")
    return array


def order_by_assignment(
    assignment: Array, vertices: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(order, offsets) of vertices by their cell; cells keep the order of their numbers.

    Raises
    ------
    ConfigError
        not one integer from 0 for each vertex.
    """
    assignment = np.asarray(assignment)
    if assignment.shape != (vertices,) or assignment.dtype.kind not in "iu":
        raise ConfigError(
            f"assignment has shape {assignment.shape} and dtype {assignment.dtype}: "
            f"allowed are {vertices} integers, a cell for each vertex"
        )
    if assignment.min() < 0:
        at = int(assignment.argmin())
        raise ConfigError(
            f"assignment puts vertex {at} into cell {assignment[at]}: allowed is 0 or more"
        )
    numbers, cell = np.unique(assignment, return_inverse=True)
    return order_by_cell(cell.astype(np.int64), len(numbers))
