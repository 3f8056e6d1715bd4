"""A rank's view of the graph: what a model's `forward(graph, x)` is given.

A view computes rows (its outputs) from columns (its inputs), both owned by this rank. On the whole
graph they are the same vertices. Where only some outputs are needed (the loss looks at labelled
vertices only), `layered` gives one view a layer, each computing just what the next one reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnndist.aggregate import Aggregate, Gather
from gnndist.comm import Comm
from gnndist.kernels import dropout_key
from gnndist.operators import Aggregation, Degrees, Operators, build_operators
from gnndist.plan import RankPlan, RankRows, assemble, request

_PLAIN = Aggregation(norm="sum", weighted=True)


@dataclass(kw_only=True)
class Clock:
    """Where training stands: what a dropout mask depends on besides vertex and feature."""

    seed: int = 0
    epoch: int = 0
    draws: int = 0
    """masks drawn in this epoch: the "layer" of the next one"""

    def start_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.draws = 0

    def next_key(self) -> int:
        """The key of the next mask. Every rank draws the same keys in the same order."""
        key = dropout_key(self.seed, self.epoch, self.draws)
        self.draws += 1
        return key


class Bipartite(NamedTuple):
    """A rank's part of the graph as a message-passing library takes it."""

    features: Tensor
    """[n_in + halo, F] owned rows, then halo rows"""
    edge_index: Tensor
    """[2, E] int64: rows of `features` → rows of the output"""
    edge_weight: Tensor | None
    """[E]"""
    row_at: Tensor
    """[n_out] where each output row stands among `features`"""


@dataclass(eq=False, kw_only=True)
class RankGraph:
    """One rank's rows of the graph and the exchange they need."""

    part: RankRows
    """the rows this view computes, with global column ids"""
    degrees: Degrees
    """of all owned vertices"""
    comm: Comm
    device: torch.device
    clock: Clock
    whole: bool = True
    """inputs are all owned vertices"""
    cover: bool = True
    """linear aggregations may send sums formed at the sender (a minimum vertex cover)"""
    propagate_once: bool = True
    """aggregate a constant input once and keep the result"""
    views: Sequence["RankGraph"] = ()
    """by layer, where layers see different vertices"""
    constant: Tensor | None = None
    """the input features: no gradient, the same every epoch"""
    _plans: dict[bool, RankPlan] = field(default_factory=dict)
    _operators: dict[tuple[Aggregation, bool, torch.dtype], Operators] = field(default_factory=dict)
    _propagated: dict[Aggregation, Tensor] = field(default_factory=dict)

    @classmethod
    def create(
        cls,
        part: RankRows,
        comm: Comm,
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        cover: bool = True,
        propagate_once: bool = True,
    ) -> "RankGraph":
        """The view of all vertices a rank owns."""
        return cls(
            part=part,
            degrees=Degrees.of(part),
            comm=comm,
            device=torch.device(device),
            clock=Clock(seed=seed),
            cover=cover,
            propagate_once=propagate_once,
        )

    # --- which vertices ---------------------------------------------------------------------

    @property
    def num_rows(self) -> int:
        """Rows that a convolution on this view returns."""
        return len(self.part.rows)

    @property
    def num_columns(self) -> int:
        """Rows that a convolution on this view takes."""
        return len(self._columns)

    @property
    def row_ids(self) -> int | Tensor:
        """Global ids of the output rows: the first of a run, or [n_out] int64."""
        return _ids(self.part.rows, self.device)

    @property
    def column_ids(self) -> int | Tensor:
        """Global ids of the input rows: the first of a run, or [n_in] int64."""
        return _ids(self._columns, self.device)

    @property
    def _columns(self) -> NDArray[np.int64]:
        if self.whole:
            return np.arange(self.part.start, self.part.stop)
        return self.plan(cover=False).columns

    def own(self, h: Tensor) -> Tensor:
        """The rows of the input `h` that are this view's output vertices."""
        if self.num_rows == self.num_columns:
            return h
        return h[torch.from_numpy(self.plan(cover=False).row_at).to(self.device)]

    def at(self, layer: int) -> "RankGraph":
        """The view that layer `layer` (from 0) of a model works on."""
        return self.views[layer] if self.views else self

    # --- plans (collective: every rank asks for the same ones in the same order) -----------------

    def plan(self, *, cover: bool) -> RankPlan:
        """The plan with summed messages, or with plain rows only."""
        if cover not in self._plans:
            requests = request(self.part, cover=cover)
            asked = self.comm.swap([r.send for r in requests])
            self._plans[cover] = assemble(self.part, requests, asked, all_columns=self.whole)
        return self._plans[cover]

    def operators(
        self, aggregation: Aggregation, dtype: torch.dtype, *, cover: bool | None = None
    ) -> Operators:
        """The matrices of an aggregation, built when first asked for."""
        cover = self.cover if cover is None else cover
        key = (aggregation, cover, dtype)
        if key not in self._operators:
            self._operators[key] = build_operators(
                self.plan(cover=cover), self.degrees, aggregation, self.comm, dtype, self.device
            )
        return self._operators[key]

    def layered(self, rows: NDArray[np.int64], num_layers: int) -> "RankGraph":
        """This graph, with views that compute just the given rows in the last layer.

        Parameters
        ----------
        rows:
            global ids, owned, ascending.
        num_layers:
            how many aggregations the model makes: views[k] reads what views[k + 1] needs.
        """
        views: list[RankGraph] = []
        for _ in range(num_layers):
            view = RankGraph(
                part=self.part.restricted(rows),
                degrees=self.degrees,
                comm=self.comm,
                device=self.device,
                clock=self.clock,
                whole=False,
                cover=self.cover,
                propagate_once=self.propagate_once,
            )
            rows = view.plan(cover=False).columns
            views.insert(0, view)
        first = views[0]
        first.views = views
        return first

    # --- what layers call -----------------------------------------------------------------------

    def aggregate(self, h: Tensor, aggregation: Aggregation) -> Tensor:
        """The linear aggregation of h: [n_in, F] → [n_out, F].

        A constant input (the features themselves) is aggregated once.
        """
        if h.shape[0] != self.num_columns:
            raise ValueError(f"h has {h.shape[0]} rows: this rank's graph takes {self.num_columns}")
        if self.is_constant(h):
            if aggregation not in self._propagated:
                operators = self.operators(aggregation, h.dtype)
                self._propagated[aggregation] = Aggregate.apply(h, operators)  # type: ignore[no-untyped-call]
            return self._propagated[aggregation]
        out: Tensor = Aggregate.apply(h.contiguous(), self.operators(aggregation, h.dtype))  # type: ignore[no-untyped-call]
        return out

    def is_constant(self, h: Tensor) -> bool:
        """Whether h is the input features, whose aggregation is computed once and kept."""
        return self.propagate_once and h is self.constant

    def bipartite(self, h: Tensor) -> Bipartite:
        """Owned and halo rows of `h` with this rank's edges, for any message-passing layer.

        The exchange is differentiable: gradients of halo rows return to their owners.
        """
        operators = self.operators(_PLAIN, h.dtype, cover=False)
        features: Tensor = Gather.apply(h.contiguous(), operators)  # type: ignore[no-untyped-call]
        plan = self.plan(cover=False)
        local, halo = operators.local, operators.receive
        rows = [_entry_rows(local.indptr), _entry_rows(halo.indptr)]
        columns = [local.indices.long(), halo.indices.long() + local.num_cols]
        weight = None
        if self.part.adjacency.values is not None:
            weight = torch.cat(
                [m.values if m.values is not None else h.new_ones(m.nnz) for m in (local, halo)]
            )
        return Bipartite(
            features,
            torch.stack([torch.cat(columns), torch.cat(rows)]),
            weight,
            torch.from_numpy(plan.row_at).to(self.device),
        )


def _ids(ids: NDArray[np.int64], device: torch.device) -> int | Tensor:
    if len(ids) == 0:
        return 0
    if ids[-1] - ids[0] + 1 == len(ids):
        return int(ids[0])
    return torch.from_numpy(ids).to(device)


def _entry_rows(indptr: Tensor) -> Tensor:
    return torch.repeat_interleave(
        torch.arange(len(indptr) - 1, device=indptr.device), indptr.diff()
    )
