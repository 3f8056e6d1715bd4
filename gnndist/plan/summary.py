"""What a store would mean for a number of ranks, without planning any exchange in full."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnndist.plan.runs import cut_runs
from gnndist.store import Store

CHUNK_EDGES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class RankCountSummary:
    """A store cut into `ranks` runs."""

    ranks: int
    halo: int
    """remote vertices read, summed over ranks"""
    halo_fraction: float
    """`halo` ÷ vertices of the graph"""
    work_imbalance: float
    """work of the busiest rank ÷ the mean, as the partition weighs it"""
    edge_imbalance: float
    train_imbalance: float
    """training vertices of the fullest rank ÷ the mean; 1 where there are none"""


def summarize(store: Store, rank_counts: tuple[int, ...] = (2, 4, 8, 16)) -> list[RankCountSummary]:
    """Halo and balance for each number of ranks that the graph has vertices for.

    Reads the edges in chunks, once for each number of ranks; holds a byte a vertex.
    """
    return [_summary(store, ranks) for ranks in rank_counts if ranks <= store.num_vertices]


def _summary(store: Store, ranks: int) -> RankCountSummary:
    runs = cut_runs(store.cell_offsets, store.cell_work(), ranks)
    halo = 0
    edges = np.zeros(ranks)
    train = np.zeros(ranks)
    for rank in range(ranks):
        start, stop = int(runs[rank]), int(runs[rank + 1])
        read = np.zeros(store.num_vertices, bool)
        for a, b in _chunks(store, start, stop):
            indptr, indices, _ = store.edges(a, b)
            read[indices] = True
            edges[rank] += indptr[-1]
        read[start:stop] = False
        halo += int(np.count_nonzero(read))
        train[rank] = np.count_nonzero(store.split(start, stop) == 1)
    vertex_work = int(store.manifest.partitioning["vertex_work"])
    return RankCountSummary(
        ranks=ranks,
        halo=halo,
        halo_fraction=halo / store.num_vertices,
        work_imbalance=_imbalance(edges + vertex_work * np.diff(runs)),
        edge_imbalance=_imbalance(edges),
        train_imbalance=_imbalance(train),
    )


def _imbalance(amount: NDArray[np.float64]) -> float:
    mean = float(amount.mean())
    return float(amount.max()) / mean if mean > 0 else 1.0


def _chunks(store: Store, start: int, stop: int) -> list[tuple[int, int]]:
    """start..stop in pieces of about `CHUNK_EDGES` edges, taking edges as evenly spread."""
    mean = max(store.num_edges / store.num_vertices, 1.0)
    step = max(1, int(CHUNK_EDGES / mean))
    return [(a, min(a + step, stop)) for a in range(start, stop, step)]
