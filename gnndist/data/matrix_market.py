"""Matrix Market files (``.mtx``): a sparse matrix whose entry (i, j) is an edge from i to j.

Entries are read as a table, in chunks. (scipy's reader is faster, but it ends the process on
some damaged files.)
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnndist.data.building import build
from gnndist.data.files import must_fit, open_bytes
from gnndist.data.scratch import Spool
from gnndist.data.tables import Table, chunks
from gnndist.errors import DataError
from gnndist.graph import Array, Graph

_FIELDS = ("pattern", "integer", "unsigned-integer", "real", "double")
_SIGN = {"general": 0, "symmetric": 1, "skew-symmetric": -1}


@dataclass(frozen=True, kw_only=True)
class _Header:
    order: int
    """rows, and columns"""
    entries: int
    pattern: bool
    """entries have no values"""
    sign: int
    """what the mirror image of an entry is to be multiplied with; 0: there is none"""
    lines: int
    """before the first entry"""


def read_matrix_market(path: Path, *, symmetrize: bool, scratch: Path | None = None) -> Graph:
    """The graph of a square matrix in coordinate format: pattern, integer or real.

    Values are the edges' weights unless all of them are 1 (or the matrix is a pattern); a
    symmetric matrix lists each edge once and is read as both.

    Raises
    ------
    DataError
        a dense, complex or rectangular matrix; a malformed file, with its row: entries are
        counted from 1.
    """
    header = _read_header(path)
    edges, weight = _read_entries(path, header, scratch)
    if header.sign:
        off = edges[0] != edges[1]
        edges = np.concatenate([edges, edges[::-1, off]], axis=1)
        weight = None if weight is None else np.concatenate([weight, header.sign * weight[off]])
    return build(
        edges,
        path,
        num_vertices=header.order,
        edge_weight=None if weight is None or bool((weight == 1).all()) else weight,
        symmetrize=symmetrize,
        scratch=scratch,
        name=path.name.removesuffix(".gz").removesuffix(".mtx"),
    )


def _read_header(path: Path) -> _Header:
    """The banner ``%%MatrixMarket matrix coordinate FIELD SYMMETRY`` and the line of sizes."""
    with open_bytes(path) as stream:
        banner = stream.readline(1 << 16).decode("ascii", "replace").lower().split()
        lines, sizes = 1, b"%"
        while sizes.startswith(b"%") or (sizes and not sizes.strip()):
            sizes = stream.readline(1 << 16)
            lines += 1
    if len(banner) != 5 or banner[0] != "%%matrixmarket" or banner[1] != "matrix":
        raise DataError(
            f"{path}: line 1: not a Matrix Market file: it begins with {' '.join(banner)[:80]!r}: "
            "allowed is '%%MatrixMarket matrix coordinate …'"
        )
    layout, field, symmetry = banner[2:]
    if layout != "coordinate" or field not in _FIELDS or symmetry not in _SIGN:
        raise DataError(
            f"{path}: line 1: a {field} {symmetry} matrix in {layout} format: allowed are "
            f"{', '.join(_FIELDS)} and {', '.join(_SIGN)} ones in coordinate format"
        )
    words = sizes.split()
    if len(words) != 3 or not all(w.isdigit() and len(w) < 19 for w in words):
        text = sizes.decode("ascii", "replace").strip()[:80]
        raise DataError(f"{path}: line {lines}: {text!r}: allowed are rows, columns and entries")
    rows, columns, entries = (int(w) for w in words)
    if rows != columns:
        raise DataError(f"{path}: a matrix of {rows} × {columns}: allowed are square ones")
    must_fit(16 * rows, path, f"a matrix of {rows} rows")
    return _Header(
        order=rows,
        entries=entries,
        pattern=field == "pattern",
        sign=_SIGN[symmetry],
        lines=lines,
    )


def _read_entries(path: Path, header: _Header, scratch: Path | None) -> tuple[Array, Array | None]:
    """[2, E] rows and columns from 0, and values [E] float32."""
    fields = ("row", "column") if header.pattern else ("row", "column", "value")
    dtypes = dict(enumerate(("int64", "int64", "float64")[: len(fields)]))
    table = Table(path=path, separator=r"\s+", skipped=header.lines, first=fields)
    pairs = Spool(np.int32 if header.order < 2**31 else np.int64, scratch)
    values = Spool(np.float32, scratch)
    read = 0
    for before, frame in chunks(table, dtypes) if header.entries else ():
        ends = frame[[0, 1]].to_numpy(np.int64)
        wrong = ((ends < 1) | (ends > header.order)).any(axis=1)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise table.error(
                before + row + 1,
                f"the entry is at {ends[row, 0]}, {ends[row, 1]}: allowed are 1 to {header.order}",
            )
        pairs.append(ends - 1)
        if not header.pattern:
            values.append(frame[2].to_numpy())
        read = before + len(frame)
    if read != header.entries:
        raise DataError(f"{path}: {read} entries, but its header says {header.entries}")
    edges = pairs.array().reshape(-1, 2).T
    return edges, None if header.pattern else values.array()
