"""A rank's view of the graph: what a model's `forward(graph, x)` is given.

A view computes rows (its outputs) from columns (its inputs), both owned by this rank. On the whole
graph they are the same vertices. Where only some outputs are needed (the loss looks at labelled
vertices only), `layered` gives one view a layer, each computing just what the next one reads.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnndist.aggregate import Aggregate, AggregateOfLinear, Linear, LinearOfAggregate
from gnndist.bipartite import Bipartite, Layout, bipartite
from gnndist.buffers import BufferPool
from gnndist.comm import Comm
from gnndist.kernels import CSR, dropout_key
from gnndist.neighbours import Neighbourhood, Neighbours
from gnndist.operators import Aggregation, Degrees, Operators, build_operators
from gnndist.plan import NEARLY_ALL, RankPlan, RankRows, assemble, request
from gnndist.savings import Savings


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Vertices:
    """Owned vertices that a tensor's rows belong to: what dropout and norms need to know."""

    column_ids: int | Tensor
    """global ids: the first of a run, or [n] int64"""
    num_columns: int
    """n"""
    comm: Comm
    clock: Clock
    whole: bool
    """they are all the vertices that this rank owns"""
    buffers: BufferPool
    """where large results go"""


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
    reads: RankPlan | None = None
    """inputs are the columns of this plan: all owned vertices, though not all are outputs"""
    whole: bool = True
    """inputs are all owned vertices"""
    savings: Savings = field(default_factory=Savings)
    """which exact savings are on"""
    buffers: BufferPool = field(default_factory=BufferPool)
    """where layers take their large results"""
    views: Sequence["RankGraph"] = ()
    """by layer, where layers see different vertices"""
    constant: Tensor | None = None
    """the input features: no gradient, the same every epoch"""
    _plans: dict[bool, RankPlan] = field(default_factory=dict)
    _operators: dict[tuple[Aggregation, bool, torch.dtype], Operators] = field(default_factory=dict)
    _neighbourhoods: dict[tuple[bool, bool, torch.dtype], Neighbourhood] = field(
        default_factory=dict
    )
    _layouts: dict[torch.dtype, Layout] = field(default_factory=dict)
    _once: dict[Hashable, Tensor] = field(default_factory=dict)

    @classmethod
    def create(
        cls,
        part: RankRows,
        comm: Comm,
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        savings: Savings = Savings(),  # noqa: B008  (frozen)
    ) -> "RankGraph":
        """The view of all vertices a rank owns."""
        return cls(
            part=part,
            degrees=Degrees.of(part),
            comm=comm,
            device=torch.device(device),
            clock=Clock(seed=seed),
            savings=savings,
        )

    # --- which vertices ---------------------------------------------------------------------

    @property
    def num_rows(self) -> int:
        """Rows that a convolution on this view returns."""
        return len(self.rows)

    @property
    def num_columns(self) -> int:
        """Rows that a convolution on this view takes."""
        return len(self.columns)

    @cached_property
    def row_ids(self) -> int | Tensor:
        """Global ids of the output rows: the first of a run, or [n_out] int64."""
        return _ids(self.rows, self.device)

    @cached_property
    def column_ids(self) -> int | Tensor:
        """Global ids of the input rows: the first of a run, or [n_in] int64."""
        return _ids(self.columns, self.device)

    @property
    def rows(self) -> NDArray[np.int64]:
        """[n_out] global ids of the output rows."""
        return self._any_plan.rows

    @property
    def columns(self) -> NDArray[np.int64]:
        """[n_in] global ids of the input rows."""
        return self._any_plan.columns

    @property
    def _any_plan(self) -> RankPlan:
        """Which rows and columns there are does not depend on how messages are formed."""
        return next(iter(self._plans.values()), None) or self.plan(cover=self.savings.cover)

    def own(self, h: Tensor) -> Tensor:
        """The rows of the input `h` that are this view's output vertices."""
        if self._any_plan.square:
            return h
        return h[torch.from_numpy(self._any_plan.row_at).to(self.device)]

    @cached_property
    def outputs(self) -> Vertices:
        """The output vertices, where a dropout or a norm follows the last convolution."""
        return Vertices(
            column_ids=self.row_ids,
            num_columns=self.num_rows,
            comm=self.comm,
            clock=self.clock,
            whole=self.whole,
            buffers=self.buffers,
        )

    def at(self, layer: int) -> "RankGraph":
        """The view that a model's layer `layer` works on, counted from this view on."""
        return self.views[layer] if self.views else self

    # --- plans (collective: every rank asks for the same ones in the same order) -----------------

    def plan(self, *, cover: bool) -> RankPlan:
        """The plan with summed messages, or with plain rows only."""
        if cover not in self._plans:
            requests = request(self.part, cover=cover)
            asked = self.comm.swap([r.send for r in requests])
            self._plans[cover] = assemble(
                self.part, requests, asked, all_columns=self.whole, like=self.reads
            )
        return self._plans[cover]

    def operators(
        self, aggregation: Aggregation, dtype: torch.dtype, *, cover: bool | None = None
    ) -> Operators:
        """The matrices of an aggregation, built when first asked for."""
        cover = self.savings.cover if cover is None else cover
        key = (aggregation, cover, dtype)
        if key not in self._operators:
            self._operators[key] = build_operators(
                self.plan(cover=cover),
                self.degrees,
                aggregation,
                self.comm,
                dtype,
                self.device,
                overlap=self.savings.overlap,
            )
        return self._operators[key]

    def layered(self, rows: NDArray[np.int64], num_layers: int) -> "RankGraph":
        """This graph, with views that compute just the given rows in the last layer.

        A view that would need nearly all vertices is this whole graph itself, with its plans.

        Parameters
        ----------
        rows:
            global ids, owned, ascending.
        num_layers:
            how many aggregations the model makes: views[k] reads what views[k + 1] needs.
        """
        views: list[RankGraph] = []
        while len(views) < num_layers and not self._nearly_all(rows):
            view = self._restricted(rows)
            if self._nearly_all(view.columns):
                view = self._restricted(rows, reads=self._any_plan)
            rows = view.columns
            views.insert(0, view)
        while len(views) < num_layers:
            views.insert(0, replace(self))
        for layer, view in enumerate(views):
            view.views = views[layer:]
        return views[0]

    def _restricted(self, rows: NDArray[np.int64], reads: RankPlan | None = None) -> "RankGraph":
        return replace(
            self,
            part=self.part.restricted(rows),
            reads=reads,
            whole=False,
            constant=None,
            _plans={},
            _operators={},
            _neighbourhoods={},
            _layouts={},
            _once={},
        )

    def _nearly_all(self, ids: NDArray[np.int64]) -> bool:
        """Whether these are nearly all vertices, over all ranks (collective)."""
        counts = torch.tensor([len(ids), len(self.degrees.count)], device=self.device)
        self.comm.all_reduce(counts)
        return float(counts[0]) >= NEARLY_ALL * float(counts[1])

    # --- what layers call -----------------------------------------------------------------------

    def aggregate(self, h: Tensor, aggregation: Aggregation) -> Tensor:
        """The linear aggregation of h: [n_in, F] → [n_out, F].

        A constant input (the features themselves) is aggregated once.
        """
        if h.shape[0] != self.num_columns:
            raise ValueError(f"h has {h.shape[0]} rows: this rank's graph takes {self.num_columns}")
        if self.is_constant(h):
            return self._kept(h, aggregation, 1)
        operators = self.operators(aggregation, h.dtype)
        out: Tensor = Aggregate.apply(h.contiguous(), operators, self.buffers)  # type: ignore[no-untyped-call]
        return out

    def aggregate_linear(
        self,
        h: Tensor,
        weight: Tensor,
        aggregation: Aggregation,
        root: Tensor | None = None,
        *,
        overwrite_gradient: bool = False,
    ) -> Tensor:
        """Â h Wᵀ + own(h) Vᵀ; h [n_in, F_in], weight W and root V [F_out, F_in].

        Â(hW) = (Âh)W: aggregate at the narrower width, or not at all where Âh is a constant.
        `overwrite_gradient` is for a result that one operation alone reads, whose gradient for it
        is a tensor of its own: the backward pass may then write to it.
        """
        out: Tensor
        if self.is_constant(h):
            roots = None if root is None else self.once("own", lambda: self.own(h))
            a = self.aggregate(h, aggregation)
            out = Linear.apply(a, weight, roots, root, self.buffers)  # type: ignore[no-untyped-call]
            return out
        operators = self.operators(aggregation, h.dtype)
        arguments = (h.contiguous(), weight, root, operators, self.buffers)
        if weight.shape[0] <= weight.shape[1] and self.savings.linear_first:
            out = AggregateOfLinear.apply(*arguments, overwrite_gradient)  # type: ignore[no-untyped-call]
        else:
            out = LinearOfAggregate.apply(*arguments)  # type: ignore[no-untyped-call]
        return out

    def propagate(self, h: Tensor, aggregation: Aggregation, steps: int) -> Tensor:
        """`steps` aggregations one after the other, step k on ``at(k)``; [n_in, F] → [n_out, F].

        A constant input is propagated once.
        """
        if self.is_constant(h):
            return self._kept(h, aggregation, steps)
        for step in range(steps):
            h = self.at(step).aggregate(h, aggregation)
        return h

    def _kept(self, h: Tensor, aggregation: Aggregation, steps: int) -> Tensor:
        def propagated() -> Tensor:
            out = h
            for step in range(steps):
                operators = self.at(step).operators(aggregation, h.dtype)
                out = Aggregate.apply(out, operators, self.buffers)  # type: ignore[no-untyped-call]
            return out

        # Views of all vertices share what they keep, though the last step may compute just some.
        rows = self.at(steps - 1).num_rows
        return self.once((aggregation, steps, rows), propagated)

    def once(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """What `make` computes from the constant input alone, computed once and kept by `key`."""
        if key not in self._once:
            with torch.no_grad():
                self._once[key] = make()
        return self._once[key]

    def is_constant(self, h: Tensor) -> bool:
        """Whether h is the input features, whose aggregation is computed once and kept."""
        return self.savings.propagate_once and h is self.constant

    def neighbourhood(
        self, dtype: torch.dtype, *, self_loops: bool = False, weighted: bool = False
    ) -> Neighbourhood:
        """The edges themselves and the exchange of plain rows, for layers that are not linear."""
        key = (self_loops, weighted, dtype)
        if key not in self._neighbourhoods:
            aggregation = Aggregation(norm="sum", self_loops=self_loops, weighted=weighted)
            operators = self.operators(aggregation, dtype, cover=False)
            plan = self.plan(cover=False)
            assert plan.halo is not None, "plain messages are vertices"
            rows, columns, halo = (
                torch.from_numpy(ids).to(self.device, torch.int64)
                for ids in (plan.rows, plan.columns, plan.halo)
            )
            self._neighbourhoods[key] = Neighbourhood(
                operators=operators,
                owned=Neighbours(csr=_pattern(operators.local), destinations=rows, sources=columns),
                halo=Neighbours(csr=_pattern(operators.receive), destinations=rows, sources=halo),
                buffers=self.buffers,
            )
        return self._neighbourhoods[key]

    def bipartite(self, h: Tensor) -> Bipartite:
        """Owned and halo rows of h, [n_in, F], with this rank's edges, for any library's layer.

        The exchange is differentiable: gradients of halo rows return to their owners.
        """
        weighted = self.part.adjacency.values is not None
        around = self.neighbourhood(h.dtype, weighted=weighted)
        if h.dtype not in self._layouts:
            row_at = None
            if not self.whole:
                row_at = torch.from_numpy(self._any_plan.row_at).to(self.device, torch.int64)
            weight_dtype = h.dtype if weighted else None
            self._layouts[h.dtype] = Layout.of(around, row_at, weight_dtype)
        return bipartite(h, around, self._layouts[h.dtype])


def _ids(ids: NDArray[np.int64], device: torch.device) -> int | Tensor:
    if len(ids) == 0:
        return 0
    if bool((np.diff(ids) == 1).all()):
        return int(ids[0])
    return torch.from_numpy(ids).to(device)


def _pattern(matrix: CSR) -> CSR:
    """Where the entries are, without their values."""
    if matrix.values is None:
        return matrix
    return CSR(indptr=matrix.indptr, indices=matrix.indices, num_cols=matrix.num_cols)
