"""The charts of a report that run over epochs."""

from collections.abc import Sequence
from typing import Any

from gnndist.graph import SPLITS
from gnndist.report.record import RunRecord
from gnndist.report.style import (
    COST_COLORS,
    FAINT,
    GRID,
    INK,
    Figure,
    color_of,
    curve_figure,
    line,
    number,
)

SPLIT_COLORS = {"train": "#94a3b8", "valid": "#2563eb", "test": "#ea580c"}


def loss_curves(runs: Sequence[RunRecord]) -> Figure:
    """Training loss by epoch, a line a run; linear or logarithmic."""
    traces = [
        line(run.lines, "loss", run.name, color_of(k) if len(runs) > 1 else INK)
        for k, run in enumerate(runs)
    ]
    figure = curve_figure(traces)
    figure["layout"]["updatemenus"] = [_scale_buttons()]
    return figure


def metric_curves(run: RunRecord, metric: str) -> Figure:
    """One run: a metric by epoch, a line a split, the best epoch marked."""
    traces = [line(run.lines, f"{split}_{metric}", split, SPLIT_COLORS[split]) for split in SPLITS]
    figure = curve_figure([t for t in traces if t["x"]])
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
        traces.append(line(run.lines, key, run.name, color_of(k)))
        if key in run.best:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [run.best["epoch"]],
                    "y": [number(run.best[key])],
                    "name": f"{run.name}, best",
                    "hoverinfo": "skip",
                    "cliponaxis": False,
                    "marker": {"size": 9, "color": color_of(k)}
                    | {"line": {"color": "#fff", "width": 1.5}},
                }
            )
    return curve_figure(traces)


def epoch_times(runs: Sequence[RunRecord]) -> Figure:
    """Milliseconds an epoch. One run: with what the slowest rank waited; several: a line a run.

    The axis is made for the epochs after the first, which may take many times as long.
    """
    steady = [1000 * line["epoch_s"] for run in runs for line in run.lines[1:] or run.lines]
    reach = [0, 1.08 * max(steady, default=1.0)]
    if len(runs) > 1:
        traces = [
            line(run.lines, "epoch_s", run.name, color_of(k), scale=1000)
            for k, run in enumerate(runs)
        ]
        figure = curve_figure(traces, "ms")
        figure["layout"]["yaxis"]["range"] = reach
        return figure
    lines = runs[0].lines
    traces = [
        line(lines, "epoch_s", "epoch", INK, scale=1000),
        line(lines, "compute_s", "computing", COST_COLORS["computing"], scale=1000),
        line(lines, "wait_s", "exchange, exposed", COST_COLORS["exchange, exposed"], scale=1000),
    ]
    figure = curve_figure(traces, "ms")
    figure["layout"]["showlegend"] = True
    figure["layout"]["yaxis"]["range"] = reach
    return figure


def learning_rates(runs: Sequence[RunRecord]) -> Figure:
    """The learning rate by epoch, a line a run."""
    traces = [
        line(run.lines, "lr", run.name, color_of(k) if len(runs) > 1 else INK)
        for k, run in enumerate(runs)
    ]
    return curve_figure(traces)


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
