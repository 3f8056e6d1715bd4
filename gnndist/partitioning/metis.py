"""METIS (Karypis and Kumar, 1998) through pymetis: the default."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from gnndist.partitioning import child
from gnndist.partitioning.balanced_metis import bisect_balanced
from gnndist.partitioning.pattern import Pattern
from gnndist.partitioning.problem import Estimate, Problem

INLINE = 2_000_000
"""Vertices + edges up to which METIS runs in this process: it is done within two seconds."""
TRAIN_IMBALANCE = 1.2
"""Training vertices are balanced too where work alone leaves a part with more than this share."""


@dataclass(frozen=True, kw_only=True)
class MetisInput:
    """What METIS is given."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    """symmetric, no loops"""
    weight: NDArray[np.int64]
    """[N] work"""
    train: NDArray[np.int64] | None = None
    """[N] training vertices (0 or 1, or how many a vertex stands for)"""
    edge_weight: NDArray[np.int64] | None = None


class Metis:
    """Recursive bisection: METIS numbers its parts so that each subtree is a run of cells.

    METIS holds the interpreter's lock while it works. A large graph therefore goes to a process
    of its own, which can be interrupted, shows progress, and gives its memory back.
    """

    def estimate(self, vertices: int, edges: int, cells: int) -> Estimate:
        return Estimate(memory=80 * edges + 300 * vertices, seconds=1.5e-6 * edges)

    def assign(self, problem: Problem) -> NDArray[np.int64]:
        pattern = Pattern(problem.graph)
        n = len(problem.weight)
        if problem.cells == 1 or pattern.num_entries == 0:
            return np.arange(n) * problem.cells // n
        if n + pattern.num_entries <= INLINE:
            indptr, indices = pattern.arrays()
            given = MetisInput(
                indptr=indptr, indices=indices, weight=problem.weight, train=problem.train
            )
            return metis(given, problem.cells, problem.seed)

        def write(folder: Path) -> None:
            _save(folder, indptr=pattern.indptr, weight=problem.weight, train=problem.train)
            size = (pattern.num_entries,)
            indices = open_memmap(folder / "indices.npy", mode="w+", dtype=np.int64, shape=size)
            at = 0
            for chunk in pattern.columns():
                indices[at : at + len(chunk)] = chunk
                at += len(chunk)

        seconds = self.estimate(n, pattern.num_entries, problem.cells).seconds
        return _in_a_child(write, problem, seconds)


def metis_for(problem: Problem, given: MetisInput, seconds: float) -> NDArray[np.int64]:
    """`metis` on a graph that stands for a problem's; in its own process where that is large."""
    if len(given.weight) + len(given.indices) <= INLINE:
        return metis(given, problem.cells, problem.seed)
    return _in_a_child(lambda folder: _save(folder, **vars(given)), problem, seconds)


def _save(folder: Path, **arrays: NDArray[np.int64] | None) -> None:
    for name, array in arrays.items():
        if array is not None:
            np.save(folder / f"{name}.npy", array)


def _in_a_child(
    write: Callable[[Path], None], problem: Problem, seconds: float
) -> NDArray[np.int64]:
    return child.run(
        __name__,
        write,
        what=f"metis: {problem.cells} cells",
        cells=problem.cells,
        seed=problem.seed,
        seconds=seconds,
        report=problem.report,
        scratch=problem.scratch,
    )


def child_main(folder: Path, cells: int, seed: int) -> NDArray[np.int64]:
    """In the child process."""
    arrays = {file.stem: np.load(file, mmap_mode="c") for file in folder.glob("*.npy")}
    return metis(MetisInput(**arrays), cells, seed)


def metis(given: MetisInput, cells: int, seed: int) -> NDArray[np.int64]:
    """The cell of each vertex: work balanced, and training vertices where they need it.

    Work alone usually balances training vertices well enough. Where it does not, METIS runs again
    with a second constraint. (Adding a training term to the one weight was tried: on real graphs
    it costs as much halo and leaves training vertices as uneven as before.)
    """
    cell = _bisect(given, cells, seed)
    train = given.train
    if train is None or imbalance(cell, train, cells) <= TRAIN_IMBALANCE:
        return cell
    balanced = bisect_balanced(
        given.indptr, given.indices, given.weight, train, given.edge_weight, cells, seed
    )
    if balanced is None or imbalance(balanced, train, cells) >= imbalance(cell, train, cells):
        return cell
    return balanced


def _bisect(given: MetisInput, cells: int, seed: int) -> NDArray[np.int64]:
    import pymetis

    _, cell = pymetis.part_graph(
        cells,
        adjacency=pymetis.CSRAdjacency(adj_starts=given.indptr, adjacent=given.indices),
        vweights=given.weight,
        eweights=given.edge_weight,
        recursive=True,
        options=pymetis.Options(seed=seed),
    )
    return np.asarray(cell, np.int64)


def imbalance(cell: NDArray[np.int64], train: NDArray[np.int64], cells: int) -> float:
    """Training vertices of the fullest of up to 16 parts of consecutive cells ÷ their mean."""
    parts = min(16, cells)
    counts = np.bincount(cell * parts // cells, train, parts)
    return float(counts.max() / max(counts.mean(), 1.0))
