"""Matrix Market files (``.mtx``): a sparse matrix whose entry (i, j) is an edge from i to j."""

from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

from gnndist.data.building import build
from gnndist.data.files import malformed, must_fit, open_bytes
from gnndist.errors import DataError
from gnndist.graph import Graph

_BROKEN = (ValueError, OverflowError, TypeError, EOFError, RuntimeError, MemoryError)


def read_matrix_market(path: Path, *, symmetrize: bool, scratch: Path | None = None) -> Graph:
    """The graph of a square matrix in coordinate format: pattern, integer or real.

    Values are the edges' weights unless all of them are 1 (or the matrix is a pattern); a
    symmetric matrix lists each edge once and is read as both.

    Raises
    ------
    DataError
        a dense, complex or rectangular matrix; a malformed file.
    """
    with open_bytes(path) as stream, malformed(path, "a Matrix Market file", *_BROKEN):
        rows, columns, entries, layout, field, _ = scipy.io.mminfo(stream)
    if layout != "coordinate" or field not in ("pattern", "integer", "unsigned-integer", "real"):
        raise DataError(
            f"{path}: a {field} matrix in {layout} format: "
            "allowed are pattern, integer or real ones in coordinate format"
        )
    if rows != columns:
        raise DataError(f"{path}: a matrix of {rows} × {columns}: allowed are square ones")
    must_fit(24 * entries, path, f"a matrix of {entries} entries")
    with open_bytes(path) as stream, malformed(path, "a Matrix Market file", *_BROKEN):
        matrix = sp.coo_array(scipy.io.mmread(stream, spmatrix=False))
    weighted = field != "pattern" and not bool((matrix.data == 1).all())
    return build(
        np.stack(matrix.coords),
        path,
        num_vertices=rows,
        edge_weight=matrix.data if weighted else None,
        symmetrize=symmetrize,
        scratch=scratch,
        name=path.name.removesuffix(".gz").removesuffix(".mtx"),
    )
