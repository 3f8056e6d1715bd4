"""The sizes of all ranks' plans as a model's training step uses them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnndist.inspection.chunks import active_rows
from gnndist.inspection.counts import Counts, count_views
from gnndist.inspection.operations import RankSizes, StepTrace
from gnndist.store import Store
from gnndist.training.shard import runs_of

Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """A store cut into ranks."""

    ranks: int
    runs: Counts
    """[ranks + 1]"""
    sizes: RankSizes


def step_masks(store: Store, trace: StepTrace) -> Sequence[tuple[Mask, Mask]]:
    """(rows, columns) of each view of a training step; none if it computes every vertex."""
    if not trace.layered:
        return ()
    active = active_rows(store, trace.layers)
    return [(active[k + 1], active[k]) for k in range(trace.layers)]


def cut(
    store: Store,
    ranks: int,
    trace: StepTrace | None = None,
    masks: Sequence[tuple[Mask, Mask]] = (),
) -> Cutting:
    """Count a store's plans for a number of ranks.

    Parameters
    ----------
    trace, masks:
        the training step whose plans are counted too, and `step_masks` of it.
    """
    runs = runs_of(store, ranks)
    views: list[tuple[Mask | None, Mask | None]] = [(None, None)]
    for rows, columns in masks:
        full = bool(rows.all()) and bool(columns.all())
        views.append((None, None) if full else (rows, columns))
    wanted = list({id(rows): (rows, columns) for rows, columns in views}.values())
    counted = count_views(store, runs, wanted)
    found = {id(rows): counts for (rows, _), counts in zip(wanted, counted, strict=True)}
    whole, *layered = (found[id(rows)] for rows, _ in views)
    layers = 1 if trace is None else trace.layers
    return Cutting(
        ranks=ranks, runs=runs, sizes=RankSizes(whole=whole, views=layered or [whole] * layers)
    )
