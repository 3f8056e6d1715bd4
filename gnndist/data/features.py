"""Feature matrices: sparse ones made dense in the smallest exact type, rows normalised."""

import numpy as np
import scipy.sparse as sp

from gnndist.errors import DataError
from gnndist.graph import Array


def checked_csr(
    data: Array, indices: Array, indptr: Array, shape: tuple[int, int], source: str
) -> sp.csr_array:
    """A CSR matrix whose parts fit together, or a `DataError` naming the row where they do not.

    scipy's compiled code believes its input: a column outside the shape would be a wild read.
    """
    rows, columns = shape
    if rows < 0 or columns < 0:
        raise DataError(f"{source}: shape {shape}: allowed are lengths from 0")
    if len(indptr) != rows + 1:
        raise DataError(f"{source}: {rows} rows have {len(indptr)} row starts: allowed {rows + 1}")
    if len(data) != len(indices):
        raise DataError(f"{source}: {len(indices)} columns have {len(data)} values")
    steps = np.diff(indptr.astype(np.int64))
    if indptr[0] != 0 or indptr[-1] != len(indices) or bool((steps < 0).any()):
        row = int(np.argmax(steps < 0))
        raise DataError(
            f"{source}: row starts must rise from 0 to {len(indices)}: "
            f"they go from {indptr[0]} to {indptr[-1]}, and by {steps.min(initial=0)} at row {row}"
        )
    wrong = (indices < 0) | (indices >= columns)
    if wrong.any():
        at = int(np.argmax(wrong))
        row = int(np.searchsorted(indptr, at, side="right")) - 1
        raise DataError(
            f"{source}: row {row} names column {indices[at]}: allowed are 0 to {columns - 1}"
        )
    return sp.csr_array((data, indices.astype(np.int64), indptr.astype(np.int64)), shape=shape)


def densify(matrix: sp.csr_array) -> Array:
    """[N, F] float16 where that holds every entry exactly (word counts up to 2048), else float32.

    Only the entries are written: pages of zeros take no memory until they are.
    """
    matrix.sum_duplicates()
    with np.errstate(over="ignore", invalid="ignore"):
        exact = bool((matrix.data.astype(np.float16) == matrix.data).all())
    dense = np.zeros(matrix.shape, np.float16 if exact else np.float32)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    dense[rows, matrix.indices] = matrix.data
    return dense


def normalize_rows(features: Array) -> Array:
    """Each row divided by its sum, rows that sum to 0 left as they are. [N, F] float32.

    The preprocessing of Kipf & Welling (2017) for the citation graphs.
    """
    sums = features.sum(axis=1, dtype=np.float64)
    scale = np.divide(1.0, sums, out=np.ones_like(sums), where=sums != 0)
    normalized: Array = np.multiply(features, scale[:, None].astype(np.float32), dtype=np.float32)
    return normalized


def as_features(values: Array, source: str) -> Array:
    """Numbers as a `Graph` keeps them: float16, float32 and float64 as they are, else float32.

    Raises
    ------
    DataError
        not two-dimensional numbers; integers that float32 does not hold exactly.
    """
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise DataError(
            f"{source}: features are {values.dtype} of shape {values.shape}: "
            "allowed are numbers, a row a vertex"
        )
    if values.dtype.kind == "f" and values.dtype.itemsize <= 8:
        return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))
    if values.dtype.kind in "iu" and values.size and values.dtype.itemsize > 2:
        low, high = int(values.min()), int(values.max())
        if max(-low, high) > 2**24:
            raise DataError(
                f"{source}: features range from {low} to {high}: integers are allowed up to 2^24, "
                "which float32 holds exactly; store larger ones as floats"
            )
    return values.astype(np.float32)
