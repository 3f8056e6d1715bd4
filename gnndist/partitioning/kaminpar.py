"""KaMinPar (Gottesbüren and others, ESA 2021): as good as METIS with less memory; an extra."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnndist.extras import need
from gnndist.partitioning import child
from gnndist.partitioning.pattern import Pattern
from gnndist.partitioning.problem import Estimate, Problem

IMBALANCE = 0.03
COMPRESSED = 1 << 29
"""Entries from which the graph is held compressed, by the preset made for that."""
THREADS = 1
"""With more, KaMinPar's answer differs from run to run, and so would the store."""
FILE = "graph.parhip"


class KaMinPar:
    """Deep multilevel partitioning: blocks are numbered so that each subtree is a run of cells.

    Its Python package takes a graph from a file only; the file is written in chunks, so that the
    graph is in memory once, in KaMinPar. It balances one weight: training vertices are left to
    chance.
    """

    def estimate(self, vertices: int, edges: int, cells: int) -> Estimate:
        compressed = edges >= COMPRESSED
        return Estimate(
            memory=(8 if compressed else 20) * edges + 150 * vertices,
            seconds=(2e-6 if compressed else 1e-6) * edges,
        )

    def assign(self, problem: Problem) -> NDArray[np.int64]:
        need("kaminpar", "kaminpar", "--method kaminpar")
        pattern = Pattern(problem.graph)
        n = len(problem.weight)
        if problem.cells == 1 or pattern.num_entries == 0:
            return np.arange(n) * problem.cells // n
        return child.run(
            __name__,
            lambda folder: write_parhip(folder / FILE, pattern, problem.weight),
            what=f"kaminpar: {problem.cells} cells",
            cells=problem.cells,
            seed=problem.seed,
            seconds=self.estimate(n, pattern.num_entries, problem.cells).seconds,
            report=problem.report,
            scratch=problem.scratch,
        )


def write_parhip(path: Path, pattern: Pattern, weight: NDArray[np.int64]) -> None:
    """Write a graph in ParHIP's binary format, a chunk of rows at a time.

    Three numbers of 64 bits (what is not there or narrower, N, entries); N + 1 positions in the
    file at which rows start, 64 bits; column ids, 32 bits; vertex weights, 64 bits.
    """
    n = len(weight)
    no_edge_weights, narrow_ids = 1 << 0, 1 << 3
    header = 3 * 8
    first = header + 8 * (n + 1)
    with path.open("wb") as file:
        np.array([no_edge_weights | narrow_ids, n, pattern.num_entries], np.uint64).tofile(file)
        (first + 4 * pattern.indptr).astype(np.uint64).tofile(file)
        for chunk in pattern.columns():
            chunk.astype(np.uint32).tofile(file)
        weight.astype(np.int64).tofile(file)


def child_main(folder: Path, cells: int, seed: int) -> NDArray[np.int64]:
    """In the child process."""
    import kaminpar

    path = folder / FILE
    compress = int(np.fromfile(path, np.uint64, count=3)[2]) >= COMPRESSED
    graph = kaminpar.load_graph(str(path), kaminpar.GraphFileFormat.PARHIP, compress=compress)
    path.unlink()
    context = kaminpar.terapart_context() if compress else kaminpar.default_context()
    kaminpar.reseed(seed)
    partitioner = kaminpar.KaMinPar(THREADS, context)
    return np.asarray(partitioner.compute_partition(graph, cells, IMBALANCE), np.int64)
