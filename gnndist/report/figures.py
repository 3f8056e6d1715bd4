"""The charts of a report, each a figure as plotly.js takes it: plain data and layout."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from gnndist.graph import SPLITS
from gnndist.report.record import Line, RunRecord
from gnndist.training.breakdown import PARTS
from gnndist.units import size

Figure = dict[str, Any]

RUN_COLORS = (
    "#2563eb", "#ea580c", "#059669", "#9333ea", "#db2777",
    "#0891b2", "#ca8a04", "#64748b", "#dc2626", "#4d7c0f",
)  # fmt: skip
TRAFFIC_COLORS = {"sent": "#2563eb", "received": "#93c5fd"}
SPLIT_COLORS = {"train": "#94a3b8", "valid": "#2563eb", "test": "#ea580c"}
COST_COLORS = {"computing": "#2563eb", "exchange, exposed": "#f97316", "reduce": "#facc15"}
PART_COLORS = {
    "sparse": "#1d4ed8",
    "dense": "#60a5fa",
    "elementwise": "#2dd4bf",
    "exchange": "#f97316",
    "reduce": "#facc15",
    "optimizer": "#a78bfa",
    "other": "#cbd5e1",
}
INK, FAINT, GRID = "#0f172a", "#64748b", "#e2e8f0"
FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MOST_BARS = 24
"""bars of a comparison before ranks are put together"""
ANNOTATED = 12
"""ranks up to which a heat map's cells are labelled"""


def color_of(index: int) -> str:
    """The colour of a run by its place in the report."""
    return RUN_COLORS[index % len(RUN_COLORS)]


# --- curves -------------------------------------------------------------------------------------


def loss_curves(runs: Sequence[RunRecord]) -> Figure:
    """Training loss by epoch, a line a run; linear or logarithmic."""
    traces = [
        _line(run.lines, "loss", run.name, color_of(k) if len(runs) > 1 else INK)
        for k, run in enumerate(runs)
    ]
    figure = _curves(traces)
    figure["layout"]["updatemenus"] = [_scale_buttons()]
    return figure


def metric_curves(run: RunRecord, metric: str) -> Figure:
    """One run: a metric by epoch, a line a split, the best epoch marked."""
    traces = [_line(run.lines, f"{split}_{metric}", split, SPLIT_COLORS[split]) for split in SPLITS]
    figure = _curves([t for t in traces if t["x"]])
    figure["layout"]["showlegend"] = True
    if epoch := run.best.get("epoch"):
        figure["layout"]["shapes"] = [
            {"type": "line", "x0": epoch, "x1": epoch, "yref": "paper", "y0": 0, "y1": 1}
            | {"line": {"color": "#94a3b8", "width": 1, "dash": "dot"}, "layer": "below"}
        ]
        figure["layout"]["annotations"] = [
            {"x": epoch, "yref": "paper", "y": 0, "yanchor": "bottom", "xanchor": "right"}
            | {"text": f"best, epoch {epoch} ", "showarrow": False}
            | {"font": {"size": 11, "color": FAINT}}
        ]
    return figure


def split_curves(runs: Sequence[RunRecord], split: str, metric: str) -> Figure:
    """Several runs: one split's metric by epoch, a line a run, each one's best epoch marked."""
    key = f"{split}_{metric}"
    traces = []
    for k, run in enumerate(runs):
        traces.append(_line(run.lines, key, run.name, color_of(k)))
        if key in run.best:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [run.best["epoch"]],
                    "y": [_number(run.best[key])],
                    "name": f"{run.name}, best",
                    "hoverinfo": "skip",
                    "cliponaxis": False,
                    "marker": {"size": 9, "color": color_of(k)}
                    | {"line": {"color": "#fff", "width": 1.5}},
                }
            )
    return _curves(traces)


def epoch_times(runs: Sequence[RunRecord]) -> Figure:
    """Milliseconds an epoch. One run: with what the slowest rank waited; several: a line a run.

    The axis is made for the epochs after the first, which may take many times as long.
    """
    steady = [1000 * line["epoch_s"] for run in runs for line in run.lines[1:] or run.lines]
    reach = [0, 1.08 * max(steady, default=1.0)]
    if len(runs) > 1:
        traces = [
            _line(run.lines, "epoch_s", run.name, color_of(k), scale=1000)
            for k, run in enumerate(runs)
        ]
        figure = _curves(traces, "ms")
        figure["layout"]["yaxis"]["range"] = reach
        return figure
    lines = runs[0].lines
    traces = [
        _line(lines, "epoch_s", "epoch", INK, scale=1000),
        _line(lines, "compute_s", "computing", COST_COLORS["computing"], scale=1000),
        _line(lines, "wait_s", "exchange, exposed", COST_COLORS["exchange, exposed"], scale=1000),
    ]
    figure = _curves(traces, "ms")
    figure["layout"]["showlegend"] = True
    figure["layout"]["yaxis"]["range"] = reach
    return figure


def learning_rates(runs: Sequence[RunRecord]) -> Figure:
    """The learning rate by epoch, a line a run."""
    traces = [
        _line(run.lines, "lr", run.name, color_of(k) if len(runs) > 1 else INK)
        for k, run in enumerate(runs)
    ]
    return _curves(traces)


# --- ranks --------------------------------------------------------------------------------------


def rank_times(runs: Sequence[RunRecord]) -> Figure:
    """Milliseconds an epoch by rank: computing, exposed exchange, sums over ranks."""
    rows = _bar_rows([(run.name, run.ranks) for run in runs])
    keys = {"computing": "compute_s", "exchange, exposed": "wait_s", "reduce": "reduce_s"}
    stacks = {
        name: [1000 * fmean(rank[key] for rank in ranks) for _, ranks in rows]
        for name, key in keys.items()
    }
    return _bars([label for label, _ in rows], stacks, COST_COLORS)


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
    return _bars([label for label, _ in rows], parts, colors)


def sent_and_received(run: RunRecord) -> Figure:
    """Bytes an epoch that each rank sends and receives."""
    labels = [f"rank {rank}" for rank in range(len(run.ranks))]
    sent = [sum(rank["bytes_to"]) for rank in run.ranks]
    received = [sum(column) for column in zip(*(r["bytes_to"] for r in run.ranks), strict=True)]
    figure = _bars(labels, {"sent": sent, "received": received}, TRAFFIC_COLORS)
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
    layout = _layout()
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


# --- shared -------------------------------------------------------------------------------------


def _layout() -> dict[str, Any]:
    return {
        "font": {"family": FONT, "size": 12, "color": INK},
        "margin": {"l": 46, "r": 16, "t": 34, "b": 44},
        "height": 300,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "#fff",
        "showlegend": False,
        "hoverlabel": {"font": {"family": FONT, "size": 12}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"},
    }


def _curves(traces: list[dict[str, Any]], unit: str = "") -> Figure:
    """Lines over epochs."""
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "tickcolor": GRID}
    axis |= {"automargin": True}
    epochs = [epoch for trace in traces for epoch in trace["x"]] or [1]
    ends = [min(epochs), max(epochs)] if min(epochs) < max(epochs) else [0, max(epochs) + 1]
    layout = _layout() | {
        "hovermode": "x unified",
        "xaxis": axis | {"title": {"text": "epoch"}, "range": ends},
        "yaxis": axis | {"title": {"text": unit}},
    }
    return {"data": traces, "layout": layout}


def _line(
    lines: Iterable[Line], key: str, name: str, color: str, *, scale: float = 1.0
) -> dict[str, Any]:
    """One figure of the epochs that have it."""
    points = [(line["epoch"], _number(line[key], scale)) for line in lines if key in line]
    return {
        "type": "scatter",
        "mode": "lines" if len(points) > 1 else "markers",
        "cliponaxis": len(points) > 1,
        "name": name,
        "x": [epoch for epoch, _ in points],
        "y": [value for _, value in points],
        "line": {"color": color, "width": 1.8},
        "marker": {"color": color},
        "hovertemplate": "%{y:.4g}",
    }


def _bars(labels: list[str], stacks: dict[str, list[float]], colors: dict[str, str]) -> Figure:
    """Horizontal bars of milliseconds, stacked."""
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": labels,
            "x": values,
            "marker": {"color": colors[name]},
            "hovertemplate": "%{x:.3g} ms",
        }
        for name, values in stacks.items()
    ]
    layout = _layout() | {
        "barmode": "stack",
        "bargap": 0.3,
        "showlegend": True,
        "hovermode": "y unified",
        "height": min(160 + 30 * len(labels), 900),
        "xaxis": {"title": {"text": "ms an epoch"}, "gridcolor": GRID, "zeroline": False},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"}
        | {"showticklabels": len(labels) <= 48, "ticks": "", "ticklabelstandoff": 6},
    }
    layout["legend"] = layout["legend"] | {"traceorder": "normal"}
    return {"data": traces, "layout": layout}


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


def _scale_buttons() -> dict[str, Any]:
    return {
        "type": "buttons",
        "direction": "right",
        "x": 1,
        "y": 1.02,
        "xanchor": "right",
        "yanchor": "bottom",
        "pad": {"b": 2},
        "bgcolor": "#fff",
        "bordercolor": GRID,
        "font": {"size": 11, "color": FAINT},
        "showactive": True,
        "buttons": [
            {"label": kind, "method": "relayout", "args": [{"yaxis.type": kind}]}
            for kind in ("linear", "log")
        ],
    }


def _number(value: Any, scale: float = 1.0) -> float | None:
    """What JSON can hold: a gap where the figure is not finite."""
    number = scale * float(value)
    return number if math.isfinite(number) else None


def words(metric: str) -> str:
    return {"rocauc": "ROC-AUC", "macro_f1": "macro F1", "micro_f1": "micro F1"}.get(
        metric, metric.replace("_", " ")
    )
