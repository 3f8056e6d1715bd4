"""The charts of a report that show ranks: their time and their traffic."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from gnndist.report.record import RunRecord
from gnndist.report.style import COST_COLORS, INK, Figure, bar_figure, base_layout
from gnndist.training.breakdown import PARTS
from gnndist.units import size

TRAFFIC_COLORS = {"sent": "#2563eb", "received": "#93c5fd"}
PART_COLORS = {
    "sparse": "#1d4ed8",
    "dense": "#60a5fa",
    "elementwise": "#2dd4bf",
    "exchange": "#f97316",
    "reduce": "#facc15",
    "optimizer": "#a78bfa",
    "other": "#cbd5e1",
}
MOST_BARS = 24
"""bars of a comparison before ranks are put together"""
ANNOTATED = 12
"""ranks up to which a heat map's cells are labelled"""


def rank_times(runs: Sequence[RunRecord]) -> Figure:
    """Milliseconds an epoch by rank: computing, exposed exchange, sums over ranks."""
    rows = _bar_rows([(run.name, run.ranks) for run in runs])
    keys = {"computing": "compute_s", "exchange, exposed": "wait_s", "reduce": "reduce_s"}
    stacks = {
        name: [1000 * fmean(rank[key] for rank in ranks) for _, ranks in rows]
        for name, key in keys.items()
    }
    return bar_figure([label for label, _ in rows], stacks, COST_COLORS)


def profile_times(runs: Sequence[RunRecord]) -> Figure:
    """Milliseconds of a profiled epoch by rank and part, the mean of the profiled epochs."""
    rows = _bar_rows([(run.name, run.profile) for run in runs if all(run.profile)])
    parts = {
        name: [
            1000 * fmean(epoch["parts"][part] for epochs in ranks for epoch in epochs)
            for _, ranks in rows
        ]
        for part, name in PARTS.items()
    }
    colors = {name: PART_COLORS[part] for part, name in PARTS.items()}
    return bar_figure([label for label, _ in rows], parts, colors)


def sent_and_received(run: RunRecord) -> Figure:
    """Bytes an epoch that each rank sends and receives."""
    labels = [f"rank {rank}" for rank in range(len(run.ranks))]
    sent = [sum(rank["bytes_to"]) for rank in run.ranks]
    received = [sum(column) for column in zip(*(r["bytes_to"] for r in run.ranks), strict=True)]
    figure = bar_figure(labels, {"sent": sent, "received": received}, TRAFFIC_COLORS)
    for trace, counts in zip(figure["data"], (sent, received), strict=True):
        trace |= {"customdata": [size(n) for n in counts], "hovertemplate": "%{customdata}"}
    figure["layout"] |= {"barmode": "group", "bargroupgap": 0.1}
    figure["layout"]["xaxis"] |= {"title": {"text": "bytes an epoch"}, "exponentformat": "SI"}
    return figure


def peak_traffic(runs: Sequence[RunRecord]) -> float:
    """The most bytes an epoch between any two ranks of any of the runs."""
    counts = (count for run in runs for rank in run.ranks for count in rank["bytes_to"])
    return float(max(counts, default=0))


def traffic(run: RunRecord, peak: float) -> Figure:
    """Bytes an epoch from each rank (row) to each rank (column); `peak` has the darkest colour."""
    table = [[float(count) for count in rank["bytes_to"]] for rank in run.ranks]
    world = len(table)
    names = [str(rank) for rank in range(world)]
    shown = [[count or None for count in row] for row in table]
    annotations = [
        {
            "x": names[to],
            "y": names[sender],
            "text": size(count),
            "showarrow": False,
            "font": {"size": 11, "color": "#fff" if count > 0.55 * peak else INK},
        }
        for sender, row in enumerate(table)
        for to, count in enumerate(row)
        if count and world <= ANNOTATED
    ]
    heat = {
        "type": "heatmap",
        "x": names,
        "y": names,
        "z": shown,
        "zmin": 0,
        "zmax": peak or 1,
        "customdata": [[size(count) for count in row] for row in table],
        "hovertemplate": "rank %{y} → rank %{x}: %{customdata}<extra></extra>",
        "hoverongaps": False,
        "xgap": 2 if world <= 32 else 0,
        "ygap": 2 if world <= 32 else 0,
        "colorscale": [[0, "#eff6ff"], [0.5, "#60a5fa"], [1, "#1e3a8a"]],
        "showscale": world > ANNOTATED,
        "colorbar": {"thickness": 10, "outlinewidth": 0, "exponentformat": "SI"},
    }
    axis = {"type": "category", "showgrid": False, "zeroline": False, "ticks": ""}
    axis |= {"showticklabels": world <= 32, "fixedrange": True}
    layout = base_layout()
    layout |= {
        "height": 300 if world <= 4 else 420,
        "annotations": annotations,
        "plot_bgcolor": "#f8fafc",
        "hovermode": "closest",
        "xaxis": axis | {"title": {"text": "to rank"}, "constrain": "domain"},
        "yaxis": axis
        | {"title": {"text": "from rank"}, "autorange": "reversed", "constrain": "domain"}
        | {"scaleanchor": "x"},
    }
    return {"data": [heat], "layout": layout}


def _bar_rows(runs: Sequence[tuple[str, Sequence[Any]]]) -> list[tuple[str, Sequence[Any]]]:
    """The bars for some runs' ranks: a label and the ranks whose mean it shows.

    A bar a rank, or one for all ranks of a run where there would be too many.
    """
    if len(runs) > 1 and sum(len(ranks) for _, ranks in runs) > MOST_BARS:
        return [(name, ranks) for name, ranks in runs if ranks]
    several = len(runs) > 1
    return [
        (f"{name} · rank {rank}" if several else f"rank {rank}", [content])
        for name, ranks in runs
        for rank, content in enumerate(ranks)
    ]
