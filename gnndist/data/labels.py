"""Labels in any of the shapes people keep them: one number a vertex, or a row of them."""

import numpy as np

from gnndist.errors import DataError
from gnndist.graph import Array, Task


def as_labels(values: Array, source: str, classes: int | None = None) -> tuple[Array, Task, int]:
    """Labels as a `Graph` keeps them, the task they pose and its width.

    One dimension (or one column) of integers, or of numbers that are whole or NaN, is a class a
    vertex: −1 and NaN mean unlabelled. Other numbers are a regression. Several columns are
    multi-label where every entry is 0, 1 or NaN, else a regression of that width.

    Parameters
    ----------
    values:
        [N] or [N, C] numbers.
    source:
        what errors call them.
    classes:
        how many classes there are; None: the largest + 1.

    Returns
    -------
    labels:
        [N] int64 (single-label) or [N, C] float32.
    task, num_classes

    Raises
    ------
    DataError
        not numbers, a class below −1, infinite values, more classes than vertices.
    """
    if values.dtype.kind not in "biuf" or values.ndim not in (1, 2):
        raise DataError(
            f"{source}: labels are {values.dtype} of shape {values.shape}: "
            "allowed are numbers, one or a row of them a vertex"
        )
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind == "f" and np.isinf(values).any():
        row = int(np.argwhere(np.isinf(values))[0][0])
        raise DataError(f"{source}: the label in row {row} is infinite")
    if values.ndim == 2:
        if values.shape[1] == 0:
            raise DataError(f"{source}: labels have shape {values.shape}: no column")
        binary = bool((np.isnan(values) | (values == 0) | (values == 1)).all())
        task: Task = "multi-label" if binary else "regression"
        return values.astype(np.float32), task, values.shape[1]
    if values.dtype.kind == "f":
        given = ~np.isnan(values)
        if not bool((values[given] == np.trunc(values[given])).all()):
            return values.astype(np.float32)[:, None], "regression", 1
        values = np.where(given, values, -1)
    classes = _classes(values, source, classes)
    return values.astype(np.int64), "single-label", classes


def _classes(values: Array, source: str, classes: int | None) -> int:
    """How many classes 0..C−1 there are: `classes`, if no label contradicts it."""
    if len(values) == 0:
        return classes or 0
    if (low := values.min()) < -1:
        row = int(np.argmin(values))
        raise DataError(
            f"{source}: the label in row {row} is {int(low)}: allowed are classes from 0, or −1"
        )
    highest = int(values.max())
    most = max(len(values), 2) if classes is None else classes
    if highest >= most:
        row = int(np.argmax(values))
        raise DataError(
            f"{source}: the label in row {row} is {highest}: allowed are classes from 0 to "
            f"{most - 1}" + ("" if classes is not None else ", since there is a vertex for each")
        )
    return highest + 1 if classes is None else classes


def one_hot_to_classes(rows: Array, source: str) -> Array:
    """Rows with one 1 become its column, rows of zeros −1 (unlabelled). [N, C] → [N] int64."""
    sums = rows.sum(axis=1)
    wrong = ~(((rows == 0) | (rows == 1)).all(axis=1) & (sums <= 1))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(f"{source}: row {row} is {rows[row].tolist()}: allowed is one 1, or none")
    return np.where(sums == 0, -1, np.argmax(rows, axis=1)).astype(np.int64)
