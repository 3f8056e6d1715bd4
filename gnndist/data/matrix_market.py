"""Matrix Market files (``.mtx``): a sparse matrix whose entry (i, j) is an edge from i to j."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp

from gnndist.data.building import build
from gnndist.data.files import malformed, must_exist, must_fit, open_bytes
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
    with ExitStack() as stack:
        plain = path if path.suffix != ".gz" else stack.enter_context(_unpacked(path, scratch))
        must_exist(plain, "Matrix Market file")
        with malformed(path, "a Matrix Market file", *_BROKEN):
            header = scipy.io.mminfo(plain)
        _check(header, path)
        with malformed(path, "a Matrix Market file", *_BROKEN):
            matrix = sp.coo_array(scipy.io.mmread(plain, spmatrix=False))
    weighted = not bool((matrix.data == 1).all())
    return build(
        np.stack(matrix.coords),
        path,
        num_vertices=matrix.shape[0],
        edge_weight=matrix.data if weighted else None,
        symmetrize=symmetrize,
        scratch=scratch,
        name=path.name.removesuffix(".gz").removesuffix(".mtx"),
    )


@contextmanager
def _unpacked(path: Path, scratch: Path | None) -> Iterator[Path]:
    """A temporary plain copy: given a Python stream, scipy ends the process where that fails."""
    with open_bytes(path) as stream, tempfile.NamedTemporaryFile(dir=scratch) as file:
        shutil.copyfileobj(stream, file, 1 << 24)
        file.flush()
        yield Path(file.name)


def _check(header: tuple[int, int, int, str, str, str], path: Path) -> None:
    rows, columns, entries, layout, field, _ = header
    if layout != "coordinate" or field not in ("pattern", "integer", "unsigned-integer", "real"):
        raise DataError(
            f"{path}: a {field} matrix in {layout} format: "
            "allowed are pattern, integer or real ones in coordinate format"
        )
    if rows != columns:
        raise DataError(f"{path}: a matrix of {rows} × {columns}: allowed are square ones")
    must_fit(24 * entries, path, f"a matrix of {entries} entries")
