"""The weight of a vertex for a graph that is yet to be partitioned, from a quick measurement."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gnndist.graph import Graph, Task
from gnndist.inspection.balance import WorkFit, fit_work
from gnndist.inspection.ball import piece_of_graph
from gnndist.inspection.costs import WorkCosts
from gnndist.inspection.counts import Messages, ViewCounts
from gnndist.inspection.locality import Locality
from gnndist.inspection.operations import RankSizes
from gnndist.inspection.probe import trace_step
from gnndist.inspection.rates import Rates
from gnndist.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class _Data:
    num_features: int
    num_classes: int
    task: Task
    weighted: bool


def measure_work(
    graph: Graph, config: TrainConfig, rates: Rates | None = None, **options: Any
) -> WorkFit:
    """What an epoch of a model costs this machine by vertex and by edge of a graph.

    The model's training step is recorded on a small graph; its products are measured at their
    widths, its gathers on a piece of `graph`. Takes seconds, and less when they are known already.

    Parameters
    ----------
    graph:
        without features or labels it is taken to have as many as the model is wide.
    rates:
        of the machine; default: this one's, as far as they have been measured before.
    **options:
        `method`, `seed` and `assignment` of `partition`, by which the piece is ordered.
    """
    rates = Rates.of_this_machine() if rates is None else rates
    data = _Data(
        num_features=graph.num_features or config.hidden,
        num_classes=graph.num_classes or config.hidden,
        task=graph.task,
        weighted=graph.weighted,
    )
    piece = piece_of_graph(graph, **options)
    locality = Locality([piece], rates)
    costs = WorkCosts(rates=rates, locality=locality, dtype=getattr(torch, config.dtype))
    trace = trace_step(data, config)
    edges = round(graph.num_edges * piece.rows / graph.num_vertices)
    return fit_work(trace, costs, _one_rank(piece.rows, edges, trace.layers))


def _one_rank(vertices: int, edges: int, layers: int) -> RankSizes:
    """A rank alone with so many vertices and edges."""
    none = np.zeros(1, np.int64)
    messages = Messages(pairs=none[:, None], send_entries=none, receive_entries=none)
    view = ViewCounts(
        rows=none + vertices,
        columns=none + vertices,
        local_edges=none + edges,
        cut_edges=none,
        unlooped=none + vertices,
        senders=none,
        receivers=none,
        boundary=none,
        plain=messages,
        cover=messages,
    )
    return RankSizes(whole=view, views=[view] * layers)
