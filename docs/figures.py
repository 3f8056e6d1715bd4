"""Draw docs/concepts.svg: a real partition of a small graph, and what rank 0 of 2 makes of it.

    python docs/figures.py [--png FILE]

Cells, runs, messages and matrices are what the package computes; nothing is drawn by hand.
"""

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from scipy.spatial import ConvexHull, Delaunay

from gnndist import Graph
from gnndist.plan import RankPlan, build_all
from gnndist.plan.runs import cut_runs
from gnndist.store import Store, write_store
from gnndist.training.shard import load_rows, runs_of

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, PathPatch, Polygon, Rectangle
from matplotlib.path import Path as Route

BLUE, ORANGE, GREY, INK, CUT = "#1f5fa8", "#d9731a", "#c9ced6", "#20252c", "#c0293a"
CELLS = ("#bcd6f2", "#93bbe6", "#cfe3f7", "#a8c9ec", "#fbd9b5", "#f6bd86", "#fde6cd", "#f8cc9f")
INTERIOR, BOUNDARY = "#bcd6f2", BLUE
VERTICES, NUM_CELLS, HUBS, HUB_DEGREE = 48, 8, 4, 11
SEED = 70


class Scene(NamedTuple):
    """The graph, its store, and both ranks' plans."""

    place: Any
    """[N, 2] by global id"""
    edges: Any
    """[E, 2] global ids, each edge once"""
    store: Store
    runs: Any
    covered: list[RankPlan]
    plain: list[RankPlan]

    @property
    def cell(self) -> Any:
        """[N] by global id"""
        return np.searchsorted(self.store.cell_offsets, np.arange(VERTICES), side="right") - 1


def scene(seed: int = SEED) -> Scene:
    """Points spread over a disc, joined to their neighbours; two of the edges' lengths cut off."""
    rng = np.random.default_rng(seed)
    points = [rng.uniform(-1, 1, 2)]
    while len(points) < VERTICES:  # the farthest of some candidates: evenly spread
        tries = rng.uniform(-1, 1, (40, 2)) * [1.35, 1.0]
        gaps = np.linalg.norm(tries[:, None] - np.array(points)[None], axis=2).min(axis=1)
        points.append(tries[gaps.argmax()])
    at = np.array(points) * [-1, 1]  # rank 0 to the left
    mesh = Delaunay(at)
    pairs = {tuple(sorted(p)) for s in mesh.simplices for p in ((s[0], s[1]), (s[1], s[2]))}
    edges = np.array(sorted(pairs))
    length = np.linalg.norm(at[edges[:, 0]] - at[edges[:, 1]], axis=1)
    edges = edges[length < 0.55]
    # A few vertices that many others know, as real graphs have them.
    for hub in rng.choice(VERTICES, HUBS, replace=False):
        near = np.argsort(np.linalg.norm(at - at[hub], axis=1))[1 : HUB_DEGREE + 1]
        edges = np.concatenate([edges, np.sort([(hub, other) for other in near], axis=1)])
    edges = np.unique(edges, axis=0)
    graph = Graph.from_edge_index(edges.T, num_vertices=VERTICES, symmetrize=True)
    with tempfile.TemporaryDirectory() as folder:
        store = write_store(graph, Path(folder) / "store", cells=NUM_CELLS)
        runs = runs_of(store, 2)
        parts = [load_rows(store, runs, rank) for rank in range(2)]
        original = store.original_ids(0, VERTICES)
    new = np.empty(VERTICES, np.int64)
    new[original] = np.arange(VERTICES)
    return Scene(
        at[original],
        np.sort(new[edges], axis=1),
        store,
        runs,
        build_all(parts, cover=True),
        build_all(parts, cover=False),
    )


def draw(path: Path) -> None:
    """The figure, as SVG or as PNG by the name's ending."""
    what = scene()
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9.5, "svg.hashsalt": "gnndist"})
    figure = plt.figure(figsize=(12, 10.4))
    grid = figure.add_gridspec(
        3, 12, height_ratios=(4.1, 4.1, 4.5), hspace=0.27, wspace=0.2,
        left=0.025, right=0.975, top=0.965, bottom=0.02,
    )  # fmt: skip
    draw_cells(figure.add_subplot(grid[0, :6]), what)
    draw_store(figure.add_subplot(grid[0, 6:]), what)
    draw_rank(figure.add_subplot(grid[1, :7]), what)
    draw_messages(figure.add_subplot(grid[1, 7:]), what)
    draw_matrices(figure.add_subplot(grid[2, :]), what)
    options = {"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": 110}
    figure.savefig(path, facecolor="white", **options)


def heading(axes: Axes, number: int, text: str) -> None:
    axes.set_title(f"{number}   {text}", loc="left", fontsize=12, fontweight="bold", color=INK)
    axes.axis("off")


def draw_edges(axes: Axes, what: Scene, chosen: Any, **style: Any) -> None:
    axes.add_collection(LineCollection(what.place[what.edges[chosen]], zorder=1, **style))


def hull(points: Any, grow: float) -> Any:
    """The outline of some points, a little larger."""
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    ring = grow * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    around = (points[:, None] + ring[None]).reshape(-1, 2)
    return around[ConvexHull(around).vertices]


def draw_cells(axes: Axes, what: Scene) -> None:
    heading(axes, 1, "The graph, partitioned once into cells")
    for cell in range(NUM_CELLS):
        points = what.place[what.cell == cell]
        outline = Polygon(hull(points, 0.1), facecolor=CELLS[cell], edgecolor="white", lw=2)
        axes.add_patch(outline)
    draw_edges(axes, what, np.full(len(what.edges), True), colors="#7b8490", linewidths=0.8)
    axes.scatter(*what.place.T, s=34, c="white", edgecolors=INK, linewidths=0.9, zorder=3)
    for cell in range(NUM_CELLS):
        x, y = clear_of(what.place, what.cell == cell)
        axes.text(x, y, str(cell), ha="center", va="center", fontsize=13, fontweight="bold",
                  color=BLUE if cell < 4 else ORANGE, zorder=5,
                  bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"})  # fmt: skip
    axes.set_aspect("equal")
    axes.set_anchor("W")
    axes.autoscale_view()


def clear_of(place: Any, members: Any) -> Any:
    """The point between members of a cell that is farthest from any vertex."""
    mine = place[members]
    shares = np.random.default_rng(0).dirichlet(np.ones(len(mine)), 400)
    tries = shares @ mine
    gaps = np.linalg.norm(tries[:, None] - place[None], axis=2).min(axis=1)
    return tries[gaps.argmax()]


def draw_store(axes: Axes, what: Scene) -> None:
    heading(axes, 2, "The store: vertices in the order of their cells")
    offsets = what.store.cell_offsets
    axes.set_xlim(-6.5, VERTICES + 0.5)
    axes.set_ylim(-4.9, 2.4)
    for cell, (a, b) in enumerate(itertools.pairwise(offsets)):
        axes.add_patch(Rectangle((a, 0.6), b - a, 1, facecolor=CELLS[cell], edgecolor="white"))
        axes.text((a + b) / 2, 1.1, str(cell), ha="center", va="center", fontweight="bold",
                  color=BLUE if cell < 4 else ORANGE)  # fmt: skip
    for at in range(VERTICES + 1):
        axes.plot([at, at], [0.6, 0.72], color="white", lw=0.8)
    axes.text(-0.6, 1.1, "cells", ha="right", va="center", color=INK)
    axes.text(0, 1.95, "global id 0", va="center", color="#5b6470", fontsize=8.5)
    axes.text(VERTICES, 1.95, f"{VERTICES - 1}", ha="right", va="center", color="#5b6470",
              fontsize=8.5)  # fmt: skip
    for line, ranks in enumerate((1, 2, 3, 5)):
        y = -0.35 - 0.95 * line
        runs = cut_runs(offsets, what.store.cell_work(), ranks)
        axes.text(-0.6, y, f"{ranks} rank{'s' * (ranks > 1)}", ha="right", va="center", color=INK)
        for rank, (a, b) in enumerate(itertools.pairwise(runs)):
            axes.add_patch(
                FancyBboxPatch((a + 0.25, y - 0.26), b - a - 0.5, 0.52, lw=1.1, edgecolor=INK,
                               facecolor="#f3f5f8", boxstyle="round,pad=0,rounding_size=0.25")
            )  # fmt: skip
            axes.text((a + b) / 2, y, f"rank {rank}", ha="center", va="center", fontsize=8.5)
    axes.text(
        0, -4.45, "Written once, it says nothing of ranks: each takes a run of cells,\n"
        "cut so that the work is even, when training starts.",
        va="center", color="#39424e", fontsize=9,
    )  # fmt: skip


def draw_rank(axes: Axes, what: Scene) -> None:
    heading(axes, 3, "What rank 0 of 2 owns and reads")
    border = what.runs[1]
    mine = what.edges < border
    plan = what.plain[0]
    boundary = plan.columns[: plan.num_boundary]
    interior = plan.columns[plan.num_boundary :]
    halo = plan.halo
    rest = np.setdiff1d(np.arange(border, VERTICES), halo)
    draw_edges(axes, what, ~mine.any(axis=1), colors="#e4e7eb", linewidths=0.8)
    draw_edges(axes, what, mine.all(axis=1), colors="#7d99bb", linewidths=1.0)
    draw_edges(axes, what, mine[:, 0] != mine[:, 1], colors=CUT, linewidths=1.6)
    groups = (
        (interior, INTERIOR, BLUE, "owned, interior: no other rank reads it"),
        (boundary, BOUNDARY, BLUE, "owned, boundary: rank 1 reads it"),
        (halo, ORANGE, INK, "halo: owned by rank 1, read by rank 0"),
        (rest, "#eef0f3", GREY, "not known to rank 0"),
    )
    for ids, face, edge, label in groups:
        axes.scatter(*what.place[ids].T, s=62, c=face, edgecolors=edge, linewidths=1.1, zorder=3,
                     label=f"{label} ({len(ids)})")  # fmt: skip
    axes.plot(
        [], [], color=CUT, lw=1.6, label=f"edges between ranks ({(mine[:, 0] != mine[:, 1]).sum()})"
    )
    axes.set_aspect("equal")
    axes.autoscale_view()
    axes.set_anchor("W")
    axes.legend(loc="center left", bbox_to_anchor=(0.99, 0.5), frameon=False, fontsize=9,
                labelspacing=0.9, handletextpad=0.5)  # fmt: skip


def draw_messages(axes: Axes, what: Scene) -> None:
    heading(axes, 4, "Messages: as few as cover the edges")
    border = what.runs[1]
    cut = what.edges[(what.edges[:, 0] < border) & (what.edges[:, 1] >= border)]
    rows, sources = np.unique(cut[:, 0]), np.unique(cut[:, 1])
    plan = what.covered[1]
    send = plan.send.to_scipy()[: int(plan.send_counts[0])]
    terms = [plan.columns[send[[k]].indices] for k in range(send.shape[0])]
    sent = [t[0] for t in terms if len(t) == 1]
    left, right = _ordered(sources, rows, cut)
    x = {"source": 0.0, "row": 1.0}
    for row, source in cut:
        summed = source not in sent
        axes.plot([x["source"], x["row"]], [left[source], right[row]], lw=1.5, zorder=1,
                  color=BLUE if summed else ORANGE, alpha=0.9)  # fmt: skip
    summed_rows = {row for row, source in cut if source not in sent}
    axes.scatter([x["source"]] * len(sources), [left[s] for s in sources], s=70, zorder=3,
                 c=[ORANGE if s in sent else "white" for s in sources], edgecolors=ORANGE,
                 linewidths=1.4)  # fmt: skip
    axes.scatter([x["row"]] * len(rows), [right[r] for r in rows], s=70, zorder=3,
                 c=[BLUE if r in summed_rows else "white" for r in rows], edgecolors=BLUE,
                 linewidths=1.4)  # fmt: skip
    top = max(*left.values(), *right.values())
    axes.text(0, top + 0.9, "rank 1's\nvertices", ha="center", color=ORANGE)
    axes.text(1, top + 0.9, "rank 0's\nrows", ha="center", color=BLUE)
    axes.text(
        1.18, top / 2,
        f"{len(cut)} edges from rank 1 to rank 0\n\n"
        f"plain rows: {len(sources)} messages\n\n"
        f"minimum vertex cover: {len(terms)}\n"
        f"  {len(sent)} vertices sent as they are\n"
        f"  {len(summed_rows)} sums, formed by the sender\n"
        "  for one of the receiver's rows",
        va="center", color=INK, fontsize=9.5, linespacing=1.35,
    )  # fmt: skip
    axes.set_xlim(-0.25, 2.75)
    axes.set_ylim(-0.7, top + 2.2)


def _ordered(sources: Any, rows: Any, cut: Any) -> tuple[dict[int, float], dict[int, float]]:
    """Heights at which few lines cross: each side by the mean of its neighbours, a few times."""
    height = float(max(len(sources), len(rows)) - 1)
    left = dict(zip(sources.tolist(), np.linspace(0, height, len(sources)), strict=True))
    right = dict(zip(rows.tolist(), np.linspace(0, height, len(rows)), strict=True))
    for _ in range(20):
        for side, other, column in ((right, left, 0), (left, right, 1)):
            mean = {
                v: np.mean([other[e[1 - column]] for e in cut.tolist() if e[column] == v])
                for v in side
            }
            for place, v in enumerate(sorted(side, key=lambda v, mean=mean: mean[v])):
                side[v] = place * height / max(1, len(side) - 1)
    return left, right


def draw_matrices(axes: Axes, what: Scene) -> None:
    heading(axes, 5, "One aggregation on rank 0:   out = L · H + R · exchange(S · H)")
    axes.set_aspect("equal")
    axes.set_anchor("W")
    axes.set_xlim(0, 138)
    axes.set_ylim(-13, 27)
    one, two = what.covered
    unit, top, width = 0.86, 25.5, 5.2
    own = len(one.columns)
    sent = int(two.send_counts[0])

    def block(x: float, columns: float, rows: int, face: str, edge: str) -> float:
        """A matrix whose top left corner is at x; where it ends."""
        axes.add_patch(
            Rectangle((x, top - rows * unit), columns, rows * unit, fc=face, ec=edge, lw=1.3)
        )
        return x + columns

    def dots(x: float, matrix: Any, color: str) -> None:
        at = matrix.tocoo()
        corners = np.stack([x + (at.col + 0.12) * unit, top - (at.row + 0.88) * unit], axis=1)
        square = 0.76 * unit * np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)])
        codes = [Route.MOVETO, *[Route.LINETO] * 3, Route.CLOSEPOLY] * len(corners)
        squares = Route((corners[:, None] + square[None]).reshape(-1, 2), codes)
        axes.add_patch(PathPatch(squares, fc=color, ec="none"))

    def name(x: float, rows: int, text: str, color: str, weight: str = "bold") -> None:
        axes.text(x, top - rows * unit - 0.9, text, ha="center", va="top", color=color,
                  fontweight=weight, linespacing=1.3)  # fmt: skip

    def sign(x: float, text: str) -> None:
        axes.text(x, top - own * unit / 2, text, ha="center", va="center", fontsize=18)

    x = block(1, width, own, "#e8f0fa", BLUE)
    name(1 + width / 2, own, "out", BLUE)
    sign(x + 3.2, "=")
    left, x = x + 6.4, block(x + 6.4, own * unit, own, "white", BLUE)
    dots(left, one.local.to_scipy(), BLUE)
    name((left + x) / 2, own, "L: owned × owned", BLUE)
    below = top - one.num_boundary * unit
    axes.plot([left - 0.5, x + 0.5], [below] * 2, color=INK, lw=0.9, ls=":")
    axes.text(x + 0.5, (top + below) / 2, "boundary", fontsize=8, color="#39424e", va="center",
              ha="left", rotation=270)  # fmt: skip
    axes.text(x + 0.5, (below + top - own * unit) / 2, "interior", fontsize=8, color="#39424e",
              va="center", ha="left", rotation=270)  # fmt: skip
    left, x = x + 4.4, block(x + 4.4, width, own, "#e8f0fa", BLUE)
    name((left + x) / 2, own, "H", BLUE)
    sign(x + 3.4, "+")
    left, x = x + 6.8, block(x + 6.8, one.receive.num_columns * unit, own, "white", CUT)
    dots(left, one.receive.to_scipy(), CUT)
    name((left + x) / 2, own, "R", CUT)
    left, x = x + 4.4, block(x + 4.4, width, sent, "#fdeedd", CUT)
    name((left + x) / 2, sent, f"{sent} messages\nreceived", CUT, "normal")
    middle = top - sent * unit / 2
    axes.add_patch(FancyArrowPatch((x + 15.2, middle), (x + 0.6, middle), color=CUT, lw=2,
                                   arrowstyle="-|>", mutation_scale=18))  # fmt: skip
    axes.text(x + 8, middle + 0.9, "exchange", ha="center", color=CUT, fontweight="bold")
    left, x = x + 16, block(x + 16, len(two.columns) * unit, sent, "white", ORANGE)
    dots(left, two.send.to_scipy()[:sent], ORANGE)
    name((left + x) / 2, sent, "S of rank 1", ORANGE)
    axes.text((left + x) / 2, top - sent * unit - 3.4,
              "a row a message,\na sum where it has\nseveral entries",
              ha="center", va="top", color=ORANGE, linespacing=1.3)  # fmt: skip
    left, x = x + 2.4, block(x + 2.4, width, len(two.columns), "#fdeedd", ORANGE)
    name((left + x) / 2, len(two.columns), "H of rank 1", ORANGE)

    def bar(a: float, b: float, y: float, face: str, text: str, color: str = "white") -> None:
        axes.add_patch(FancyBboxPatch((a, y), b - a, 2.7, fc=face, ec="none",
                                      boxstyle="round,pad=0,rounding_size=0.6"))  # fmt: skip
        axes.text((a + b) / 2, y + 1.3, text, ha="center", va="center", color=color, fontsize=9.5)

    axes.text(1, -3.0, "in time", fontweight="bold", va="center", color=INK)
    for y, text in ((-6.1, "rank 0 computes"), (-9.9, "the network carries")):
        axes.text(1, y, text, va="center", ha="left", color="#39424e")
    bar(20, 31, -7.4, ORANGE, "S · H")
    bar(31.4, 92, -7.4, BLUE, "L · H")
    bar(92.4, 110, -7.4, CUT, "+ R · received")
    bar(31.4, 84, -11.2, "#f3c9cd", "the messages, hidden beside L · H", INK)
    axes.text(112, -8.2, "backward: each transposed,\nthe exchange reversed",
              va="center", color="#39424e", fontsize=9)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--png", type=Path, help="draw this instead, to look at")
    chosen = parser.parse_args()
    draw(chosen.png or Path(__file__).with_name("concepts.svg"))


if __name__ == "__main__":
    main()
