"""What one rank loads of a store: its view of the graph, features, labels and splits."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnndist.comm import Comm
from gnndist.errors import ConfigError
from gnndist.plan import Matrix, RankRows
from gnndist.plan.runs import cut_runs
from gnndist.rankgraph import RankGraph
from gnndist.savings import Savings
from gnndist.store import Store


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One rank's vertices: n of them, in the order of its graph's columns."""

    graph: RankGraph
    features: Tensor
    """[n, F]"""
    labels: Tensor
    """[n] int64 or [n, C] float32"""
    split: Tensor
    """[n] uint8: 0 none, 1 train, 2 valid, 3 test"""
    original_ids: NDArray[np.int64]
    """[n]"""

    def place(self, global_ids: NDArray[np.int64]) -> Tensor:
        """Where these owned vertices stand among the shard's rows."""
        at = np.empty(len(self.graph.columns), np.int64)
        at[self.graph.columns - self.graph.part.start] = np.arange(len(at))
        return torch.from_numpy(at[global_ids - self.graph.part.start]).to(self.features.device)

    @property
    def train_rows(self) -> Tensor:
        """Local ids of the training vertices, ascending."""
        return torch.nonzero(self.split == 1).flatten()


def runs_of(store: Store, ranks: int) -> NDArray[np.int64]:
    """Where each rank's run of vertices begins: balanced by the work its cells were balanced by."""
    return cut_runs(store.cell_offsets, store.cell_work(), ranks)


def check_ranks(store: Store, ranks: int) -> None:
    """Refuse more ranks than there are vertices."""
    if ranks > store.num_vertices:
        raise ConfigError(f"{ranks} ranks: allowed are 1 to {store.num_vertices}, the vertices")


def check_trainable(store: Store) -> None:
    """Refuse a store that nothing can be learnt from: it needs features and training vertices."""
    if store.manifest.num_features == 0:
        raise ConfigError(f"{store.path} has no features: training needs them")
    if store.cell_train.sum() == 0:
        raise ConfigError(f"{store.path} has no training vertex: training needs at least one")


def load_rows(store: Store, runs: NDArray[np.int64], rank: int) -> RankRows:
    """A rank's rows of the adjacency."""
    start, stop = int(runs[rank]), int(runs[rank + 1])
    indptr, indices, weight = store.edges(start, stop)
    return RankRows(
        rank=rank,
        runs=runs,
        rows=np.arange(start, stop),
        adjacency=Matrix(
            indptr=np.asarray(indptr, np.int64),
            indices=np.asarray(indices),
            values=None if weight is None else np.asarray(weight, np.float64),
            num_columns=store.num_vertices,
        ),
    )


def load_shard(
    store: Store,
    comm: Comm,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    savings: Savings = Savings(),  # noqa: B008  (frozen)
    runs: NDArray[np.int64] | None = None,
) -> Shard:
    """Load this rank's part of the store onto its device.

    Raises
    ------
    ConfigError
        if the store has no features or no training vertices.
    StoreError
        if a file of this rank's rows does not match its checksum.
    """
    check_trainable(store)
    runs = runs_of(store, comm.world) if runs is None else runs
    start, stop = int(runs[comm.rank]), int(runs[comm.rank + 1])
    store.verify(start, stop)
    rows = load_rows(store, runs, comm.rank)
    graph = RankGraph.create(rows, comm, device=device, seed=seed, savings=savings)
    order = torch.from_numpy(graph.columns - start)

    def placed(rows: Tensor) -> Tensor:
        return rows[order].to(device)

    features = store.features(start, stop)[order].to(device=device, dtype=dtype)
    graph.constant = features
    return Shard(
        graph=graph,
        features=features,
        labels=placed(torch.from_numpy(np.array(store.labels(start, stop)))),
        split=placed(torch.from_numpy(np.array(store.split(start, stop)))),
        original_ids=store.original_ids(start, stop)[order.numpy()],
    )
