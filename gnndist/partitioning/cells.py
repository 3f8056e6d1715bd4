"""Cells: the order in which a store holds its vertices, and where one cell ends."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_CELLS = 256
VERTICES_PER_CELL = 64


@dataclass(frozen=True, kw_only=True)
class Cells:
    """A division of N vertices into cells, consecutive in a new order."""

    order: NDArray[np.int64]
    """[N] global id → original id; ascending within a cell"""
    offsets: NDArray[np.int64]
    """[cells + 1] strictly ascending: cell c holds global ids ``offsets[c]:offsets[c + 1]``"""
    method: str
    seed: int
    vertex_work: int
    """work of a vertex in units of an edge's, as it was balanced"""

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    def global_ids(self) -> NDArray[np.int64]:
        """[N] original id → global id: the inverse of `order`."""
        inverse = np.empty_like(self.order)
        inverse[self.order] = np.arange(len(self.order))
        return inverse


def default_cells(vertices: int) -> int:
    """A power of two: one cell for 64 vertices or more, at most 256.

    More cells let any number of ranks be cut evenly; far fewer vertices than these in each would
    make cells that are all boundary.
    """
    wanted = min(max(vertices // VERTICES_PER_CELL, 1), MOST_CELLS)
    return 1 << (wanted.bit_length() - 1)


def order_by_cell(
    assignment: NDArray[np.int64], cells: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(order, offsets) of vertices sorted by cell, then by original id; empty cells dropped."""
    # A stable sort of small integers is a radix sort: O(N), and ascending ids within a cell.
    small = assignment.astype(np.uint16 if cells <= 2**16 else np.int64)
    order = np.argsort(small, kind="stable").astype(np.int64)
    sizes = np.bincount(assignment, minlength=cells)
    offsets = np.concatenate([[0], np.cumsum(sizes[sizes > 0])]).astype(np.int64)
    return order, offsets
