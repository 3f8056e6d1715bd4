"""Everything `gnndist inspect` says, for one number of ranks after the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from gnndist.errors import ConfigError
from gnndist.inspection.balance import WorkFit, fit_work
from gnndist.inspection.costs import Costs
from gnndist.inspection.counts import Counts
from gnndist.inspection.locality import Locality, pieces_of_store
from gnndist.inspection.memory import Memory, memory_of
from gnndist.inspection.network import Network
from gnndist.inspection.operations import RankSizes, StepTrace
from gnndist.inspection.probe import step_overhead, trace_step
from gnndist.inspection.rates import Rates
from gnndist.inspection.simulate import Epoch, simulate
from gnndist.inspection.sizes import cut, step_masks
from gnndist.inspection.wire import measured_wire
from gnndist.store import Store
from gnndist.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class ModelFigures:
    """What a model's training would cost; [ranks] or [ranks, ranks]."""

    epoch: Epoch
    work: WorkFit
    memory: Memory
    network: Network
    sent: Counts
    """[ranks, ranks] bytes an epoch, from the rank of the row to the rank of the column"""
    sent_once: int
    """bytes that only the first epoch sends"""
    sent_evaluating: int
    """bytes of an evaluation"""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A store on a number of ranks."""

    ranks: int
    runs: Counts
    """[ranks + 1]"""
    sizes: RankSizes
    train: Counts
    """[ranks] training vertices"""
    model: ModelFigures | None

    @property
    def owned(self) -> Counts:
        return self.sizes.whole.rows

    @property
    def edges(self) -> Counts:
        return self.sizes.whole.local_edges + self.sizes.whole.cut_edges

    @property
    def halo(self) -> Counts:
        """[ranks] remote vertices read."""
        return self.sizes.whole.plain.received

    @property
    def covered(self) -> Counts:
        """[ranks] messages received instead, by a minimum vertex cover."""
        return self.sizes.whole.cover.received

    @property
    def sends(self) -> Counts:
        """[ranks] what each rank sends: bytes an epoch, or covered messages without a model."""
        if self.model is not None and self.model.sent.any():
            sent: Counts = self.model.sent.sum(axis=1)
            return sent
        return self.sizes.whole.cover.sent

    @property
    def vertex_work(self) -> float | None:
        """Work of a vertex in units of an edge's; None without a model, or without edges."""
        return None if self.model is None else self.model.work.ratio

    def imbalances(self) -> dict[str, float]:
        """Most loaded rank ÷ the mean."""
        found = {"edges": imbalance(self.edges), "train": imbalance(self.train)}
        found["send"] = imbalance(self.sends)
        if self.model is not None:
            found["work"] = imbalance(self.model.epoch.busy_s)
        return found


def imbalance(amount: Any) -> float:
    """Largest ÷ mean; 1 where there is nothing."""
    mean = float(np.mean(amount))
    return float(np.max(amount)) / mean if mean > 0 else 1.0


class Inspector:
    """A store, a model and a machine: asked for one number of ranks after the other."""

    def __init__(
        self, store: Store, config: TrainConfig | None, network: Network, rates: Rates | None = None
    ) -> None:
        self.store = store
        self.network = network
        self.trace: StepTrace | None = None
        self.costs: Costs | None = None
        if config is not None:
            self.trace = trace_step(store.manifest, config)
            rates = Rates.of_this_machine() if rates is None else rates
            self.costs = Costs(
                rates=rates,
                locality=Locality(pieces_of_store(store), rates),
                wire=measured_wire(rates),
                dtype=getattr(torch, config.dtype),
                overhead_s=step_overhead(store.manifest, config),
            )
        self._masks = () if self.trace is None else step_masks(store, self.trace)

    def at(self, ranks: int) -> Inspection:
        """What the store means for so many ranks.

        Raises
        ------
        ConfigError
            for more ranks than vertices.
        """
        if not 1 <= ranks <= self.store.num_vertices:
            raise ConfigError(
                f"{ranks} ranks: allowed are 1 to {self.store.num_vertices}, the vertices"
            )
        cutting = cut(self.store, ranks, self.trace, self._masks)
        return Inspection(
            ranks=ranks,
            runs=cutting.runs,
            sizes=cutting.sizes,
            train=_train(self.store, cutting.runs),
            model=self._figures(cutting.sizes),
        )

    def _figures(self, sizes: RankSizes) -> ModelFigures | None:
        if self.trace is None or self.costs is None:
            return None
        return ModelFigures(
            epoch=simulate(self.trace, sizes, self.costs, self.network),
            work=fit_work(self.trace, self.costs, sizes),
            memory=memory_of(self.trace, sizes, self.costs.wire.process_bytes),
            network=self.network,
            sent=self.trace.bytes_sent(sizes),
            sent_once=int(self.trace.bytes_sent_once(sizes).sum()),
            sent_evaluating=int(self.trace.bytes_sent_evaluating(sizes).sum()),
        )


def inspect_store(
    store: Store, rank_counts: Sequence[int], config: TrainConfig | None, network: Network
) -> Iterator[Inspection]:
    """One inspection a number of ranks."""
    inspector = Inspector(store, config, network)
    for ranks in rank_counts:
        yield inspector.at(ranks)


def _train(store: Store, runs: Counts) -> Counts:
    return np.array([np.count_nonzero(store.split(int(a), int(b)) == 1) for a, b in pairwise(runs)])
