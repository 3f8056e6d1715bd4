"""How the charts of a report look: colours, axes, lines and bars as plotly.js takes them."""

import math
from collections.abc import Iterable
from typing import Any

from gnndist.report.record import Line

Figure = dict[str, Any]
"""`data` (traces) and `layout`"""

RUN_COLORS = (
    "#2563eb", "#ea580c", "#059669", "#9333ea", "#db2777",
    "#0891b2", "#ca8a04", "#64748b", "#dc2626", "#4d7c0f",
)  # fmt: skip
COST_COLORS = {"computing": "#2563eb", "exchange, exposed": "#f97316", "reduce": "#facc15"}
INK, FAINT, GRID = "#0f172a", "#64748b", "#e2e8f0"
FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def color_of(index: int) -> str:
    """The colour of a run by its place in the report."""
    return RUN_COLORS[index % len(RUN_COLORS)]


def base_layout() -> dict[str, Any]:
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


def curve_figure(traces: list[dict[str, Any]], unit: str = "") -> Figure:
    """Lines over epochs."""
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "tickcolor": GRID}
    axis |= {"automargin": True}
    epochs = [epoch for trace in traces for epoch in trace["x"]] or [1]
    ends = [min(epochs), max(epochs)] if min(epochs) < max(epochs) else [0, max(epochs) + 1]
    layout = base_layout() | {
        "hovermode": "x unified",
        "xaxis": axis | {"title": {"text": "epoch"}, "range": ends},
        "yaxis": axis | {"title": {"text": unit}},
    }
    return {"data": traces, "layout": layout}


def line(
    lines: Iterable[Line], key: str, name: str, color: str, *, scale: float = 1.0
) -> dict[str, Any]:
    """One figure of the epochs that have it."""
    points = [(each["epoch"], number(each[key], scale)) for each in lines if key in each]
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


def bar_figure(labels: list[str], stacks: dict[str, list[float]], colors: dict[str, str]) -> Figure:
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
    layout = base_layout() | {
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


def number(value: Any, scale: float = 1.0) -> float | None:
    """What JSON can hold: a gap where the figure is not finite."""
    number = scale * float(value)
    return number if math.isfinite(number) else None


def words(metric: str) -> str:
    return {"rocauc": "ROC-AUC", "macro_f1": "macro F1", "micro_f1": "micro F1"}.get(
        metric, metric.replace("_", " ")
    )
