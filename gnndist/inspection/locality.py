"""How fast a graph's own rows are gathered: sparse products measured on pieces of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from gnndist.graph import Array
from gnndist.inspection.rates import Rates, Sizes
from gnndist.kernels import CSR
from gnndist.store import Store

ROWS = (2_000, 20_000, 200_000)
"""sizes of the pieces, in vertices"""
MOST_EDGES = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The edges among some vertices, which lie in the order of a partition."""

    rows: int
    matrix: CSR
    key: str
    """a name for its edges"""

    @classmethod
    def of(cls, indptr: NDArray[np.int64], sources: Array) -> "Piece":
        """From CSR by destination: [rows + 1], and [edges] positions within the piece."""
        columns = sources.astype(np.int32)
        content = xxhash.xxh3_64(indptr.tobytes())
        content.update(columns.tobytes())
        rows = len(indptr) - 1
        matrix = CSR(
            indptr=torch.from_numpy(indptr.astype(np.int64)),
            indices=torch.from_numpy(columns),
            values=torch.rand(len(columns)),
            num_cols=rows,
        )
        return cls(rows=rows, matrix=matrix, key=content.hexdigest())


class Locality:
    """Seconds of one core to gather, by width of the features and size of the table.

    A partition puts neighbours near each other in memory; how near, and so how often a row that is
    gathered is in a cache already, is measured on pieces of the graph itself, of ascending size.
    """

    def __init__(self, pieces: Sequence[Piece], rates: Rates) -> None:
        self._rates = rates
        self._pieces = pieces

    def entry(self, width: int, table_rows: Sizes) -> Sizes:
        """Seconds for an entry of a sparse product on tables of so many float32 rows."""
        sizes = [np.log2(piece.rows) for piece in self._pieces]
        seconds = [self._entry(piece, width) for piece in self._pieces]
        return np.asarray(np.interp(np.log2(np.maximum(table_rows, 1.0)), sizes, seconds))

    def row(self, width: int) -> float:
        """Seconds to write a row of the result."""
        return 4 * width * float(self._rates.stream(np.array(2.0**20), fused=True))

    def _entry(self, piece: Piece, width: int) -> float:
        key = f"sparse {piece.key} {width}"
        seconds = self._rates.sparse(key, piece.matrix, width)
        entries = max(piece.matrix.nnz, 1)
        # The rows' own share is taken off, but most of a gather is entries.
        return max(seconds - piece.rows * self.row(width), 0.3 * seconds) / entries


def pieces_of_store(store: Store) -> Sequence[Piece]:
    """Runs of consecutive vertices of a store."""
    vertices = store.num_vertices
    degree = max(store.num_edges / vertices, 1.0)
    most = min(vertices, int(MOST_EDGES / degree))
    sizes = sorted({min(rows, most) for rows in ROWS})
    return [_piece(store, max(rows, 1)) for rows in sizes]


def _piece(store: Store, rows: int) -> Piece:
    """A piece from the middle of the store, beginning with a cell where that leaves enough."""
    starts = store.cell_offsets[:-1]
    fitting = starts[starts <= store.num_vertices - rows]
    start = int(fitting[np.argmin(np.abs(fitting - (store.num_vertices - rows) // 2))])
    indptr, indices, _ = store.edges(start, start + rows)
    inside = (indices >= start) & (indices < start + rows)
    kept = np.concatenate([[0], np.cumsum(inside)])[indptr]
    return Piece.of(kept, indices[inside] - start)
