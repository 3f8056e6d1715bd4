"""Inspections as a picture: who sends how much to whom, and how evenly ranks are loaded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnndist.errors import ConfigError
from gnndist.extras import need
from gnndist.inspection.prediction import Inspection, imbalance
from gnndist.inspection.simulate import KINDS

FORMATS = (".png", ".pdf", ".svg")
ANNOTATED = 8
"""ranks up to which a heat map's cells say their number"""
LABELLED = 16
"""ranks up to which each has its tick"""
COLORS = {
    "sparse": "#1d4ed8",
    "dense": "#60a5fa",
    "elementwise": "#2dd4bf",
    "transport": "#f97316",
    "overhead": "#94a3b8",
    "waiting": "#fecaca",
    "reduce": "#facc15",
}
INK, FAINT, GRID = "#0f172a", "#64748b", "#e2e8f0"
ROW, WIDTH = 3.6, 13.0
"""inches"""


def need_matplotlib(path: Path) -> None:
    """Fail before the work if the picture cannot be drawn afterwards.

    Raises
    ------
    GnndistError
        matplotlib is missing, the format is not known or there is no such folder.
    """
    need("matplotlib", "plot", "--plot")
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"--plot {path}: allowed are {', '.join(FORMATS)}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--plot {path}: {path.parent} is not a directory")


def draw(found: Sequence[Inspection], name: str, path: Path) -> None:
    """Write the picture: a row a number of ranks."""
    figures = need("matplotlib.figure", "plot", "--plot")
    figure = figures.Figure(figsize=(WIDTH, 0.5 + ROW * len(found)), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.12, w_pad=0.1)
    model = found[0].model is not None
    rows = figure.subfigures(len(found), 1, squeeze=False)[:, 0]
    figure.suptitle(name, x=0.01, ha="left", color=INK, fontsize=14, fontweight="bold")
    for one, row in zip(found, rows, strict=True):
        left, right = row.subplots(1, 2, gridspec_kw={"width_ratios": [1, 2.1]})
        _heat(left, one, row)
        if model:
            _epoch_bars(right, one)
        else:
            _edge_bars(right, one)
    figure.savefig(path, dpi=130)


def _heat(axes: Any, one: Inspection, figure: Any) -> None:
    """Traffic from the rank of the row to the rank of the column."""
    colors = need("matplotlib.colors", "plot", "--plot")
    traffic = one.sizes.whole.cover.pairs.astype(float)
    unit, what = "messages", "messages (covered)"
    if one.model is not None and one.model.sent.any():
        traffic = one.model.sent / 1e6
        unit, what = "MB", "sent an epoch, MB"
    shown = np.ma.masked_equal(traffic, 0.0)
    low, high = (float(shown.min()), float(shown.max())) if traffic.any() else (1.0, 10.0)
    low = min(max(low, high / 1e4), high / 1.5)
    image = axes.imshow(
        shown, cmap="YlGnBu", norm=colors.LogNorm(low, high, clip=True), interpolation="nearest"
    )
    axes.set_facecolor("#f8fafc")
    axes.set_title(f"{one.ranks:,} ranks: {what}", loc="left", color=INK, fontsize=10)
    axes.set_xlabel("to rank", color=FAINT, fontsize=9)
    axes.set_ylabel("from rank", color=FAINT, fontsize=9)
    _rank_ticks(axes.xaxis, one.ranks)
    _rank_ticks(axes.yaxis, one.ranks)
    _quiet(axes)
    if one.ranks <= ANNOTATED:
        middle = np.sqrt(low * high)
        for (i, j), value in np.ndenumerate(traffic):
            if value > 0:
                ink = "white" if value > middle else INK
                text = f"{value:.3g}" if unit == "MB" else f"{value:,.0f}"
                axes.text(j, i, text, ha="center", va="center", fontsize=8, color=ink)
    ticker = need("matplotlib.ticker", "plot", "--plot")
    bar = figure.colorbar(
        image, ax=axes, shrink=0.9, pad=0.02, ticks=ticker.LogLocator(subs=(1, 2, 5)),
        format=ticker.FormatStrFormatter("%g"),
    )  # fmt: skip
    bar.ax.yaxis.set_minor_locator(ticker.NullLocator())
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=FAINT, labelsize=8)


def _epoch_bars(axes: Any, one: Inspection) -> None:
    """Where each rank's epoch goes."""
    assert one.model is not None
    epoch = one.model.epoch
    scale, unit = (1e3, "ms") if epoch.epoch_s < 1 else (1.0, "s")
    parts = {kind: epoch.work_s[kind] for kind in KINDS}
    parts |= {"waiting": epoch.wait_s, "reduce": epoch.reduce_s}
    _stack(axes, one.ranks, {name: scale * part for name, part in parts.items()})
    ratios = one.imbalances()
    axes.set_ylabel(f"{unit} an epoch", color=FAINT, fontsize=9)
    axes.set_title(
        f"predicted epoch {scale * epoch.epoch_s:.3g} {unit}; busiest ÷ mean: work "
        f"{ratios['work']:.2f}, sent {ratios['send']:.2f}, memory "
        f"{imbalance(one.model.memory.rank):.2f}",
        loc="left",
        color=INK,
        fontsize=10,
    )


def _edge_bars(axes: Any, one: Inspection) -> None:
    """How edges and halo lie on ranks."""
    local = one.sizes.whole.local_edges.astype(float)
    parts = {"edges inside the rank": local, "edges from other ranks": one.edges - local}
    colors = dict(zip(parts, (COLORS["dense"], COLORS["transport"]), strict=True))
    _stack(axes, one.ranks, parts, colors)
    ratios = one.imbalances()
    axes.set_ylabel("edges", color=FAINT, fontsize=9)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(
        f"busiest ÷ mean: edges {ratios['edges']:.2f}, sent {ratios['send']:.2f}; "
        f"halo ÷ owned {one.halo.sum() / one.owned.sum():.2f}",
        loc="left",
        color=INK,
        fontsize=10,
    )


def _stack(axes: Any, ranks: int, parts: dict[str, Any], colors: dict[str, str] = COLORS) -> None:
    """Bars of several parts, one a rank; ranks without gaps where there are many."""
    at = np.arange(ranks)
    bottom = np.zeros(ranks)
    total = sum(float(part.sum()) for part in parts.values())
    for name, part in parts.items():
        if part.sum() < 0.002 * total:
            continue
        if ranks > 4 * LABELLED:
            edges = np.concatenate([at - 0.5, [ranks - 0.5]])
            axes.stairs(bottom + part, edges, baseline=bottom, fill=True, color=colors[name],
                        label=name)  # fmt: skip
        else:
            axes.bar(at, part, 0.8, bottom=bottom, color=colors[name], label=name)
        bottom += part
    axes.set_xlim(-0.6, ranks - 0.4)
    axes.set_ylim(0, 1.05 * max(float(bottom.max()), 1e-12))
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.set_xlabel("rank", color=FAINT, fontsize=9)
    _rank_ticks(axes.xaxis, ranks)
    _quiet(axes)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9,
                labelcolor=INK, reverse=True)  # fmt: skip


def _rank_ticks(axis: Any, ranks: int) -> None:
    step = 1 if ranks <= LABELLED else 1 << max((ranks // 8 - 1).bit_length(), 0)
    axis.set_ticks(np.arange(0, ranks, step))


def _quiet(axes: Any) -> None:
    axes.tick_params(colors=FAINT, labelsize=8, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
