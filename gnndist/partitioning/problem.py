"""What a partitioner is given, and what it must return."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gnndist.graph import Graph


class Report(Protocol):
    """Told how far a long piece of work has come."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """`done` of `total` steps of `stage`; a total of 0 means that nobody knows."""


def silent(stage: str, done: int, total: int) -> None:
    """A report that nobody reads."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A graph to be divided into cells of about equal weight with few edges between them."""

    graph: Graph
    weight: NDArray[np.int64]
    """[N] work of each vertex, at least 1"""
    train: NDArray[np.int64] | None
    """[N] 1 on training vertices, else 0; None where there are none"""
    cells: int
    """1 to N"""
    seed: int
    report: Report = silent
    scratch: Path | None = None
    """folder for temporary files; None: the system's"""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a partitioner will need, roughly."""

    memory: int
    """bytes, beyond the graph itself"""
    seconds: float
    """on two cores"""


class Partitioner(Protocol):
    """A way to divide a graph. Two methods, no state."""

    def estimate(self, vertices: int, edges: int, cells: int) -> Estimate:
        """Memory and time for a graph of this size."""

    def assign(self, problem: Problem) -> NDArray[np.int64]:
        """The cell of each vertex, [N] in 0..cells−1: same problem, same answer.

        Cells are numbered so that consecutive ones are close: cells a..b−1 together are a good
        part of the graph for any a < b, best where they are a subtree of a recursive bisection.
        """
