"""What a vertex costs in edges, for one model on one machine."""

from dataclasses import dataclass, replace

import numpy as np

from gnndist.inspection.costs import WorkCosts
from gnndist.inspection.counts import ViewCounts
from gnndist.inspection.operations import Gather, Product, RankSizes, StepTrace, Stream


@dataclass(frozen=True, kw_only=True)
class WorkFit:
    """An epoch's computation as so much a vertex and so much an edge: seconds of one core."""

    vertex_s: float
    edge_s: float

    @property
    def ratio(self) -> float | None:
        """Work of a vertex in units of an edge's; None where edges cost nothing."""
        return self.vertex_s / self.edge_s if self.edge_s > 0 else None

    @property
    def vertex_work(self) -> int:
        """`ratio` as `gnndist partition --vertex-work` takes it, at least 1."""
        return max(round(self.ratio or 1), 1)


def fit_work(trace: StepTrace, costs: WorkCosts, sizes: RankSizes) -> WorkFit:
    """Work of a training step, split between vertices and edges.

    An edge costs what the step would cost more with twice the edges; the rest (dense products,
    elementwise operations, self-loops, results written) is the vertices'. What messages and the
    interpreter cost is nobody's.
    """
    edges = _edges(sizes)
    once, twice = (_seconds(trace, costs, some) for some in (sizes, _twice_the_edges(sizes)))
    vertices = max(float(sizes.whole.rows.sum()), 1.0)
    return WorkFit(vertex_s=(2 * once - twice) / vertices, edge_s=(twice - once) / max(edges, 1.0))


def _seconds(trace: StepTrace, costs: WorkCosts, sizes: RankSizes) -> float:
    alone = np.ones(sizes.ranks)
    computed = (op for op in trace.operations if isinstance(op, Product | Gather | Stream))
    return sum(float(costs.of(op, sizes, alone)[1].sum()) for op in computed)


def _edges(sizes: RankSizes) -> float:
    return float(sizes.whole.local_edges.sum() + sizes.whole.cut_edges.sum())


def _twice_the_edges(sizes: RankSizes) -> RankSizes:
    return RankSizes(whole=_denser(sizes.whole), views=[_denser(view) for view in sizes.views])


def _denser(view: ViewCounts) -> ViewCounts:
    return replace(view, local_edges=2 * view.local_edges, cut_edges=2 * view.cut_edges)
