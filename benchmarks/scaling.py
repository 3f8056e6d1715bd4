"""How a store would scale: predictions for many numbers of ranks as a table and a picture.

    python benchmarks/scaling.py STORE --layers 3 --plot docs/scaling.png

One rank a host like this one, on the networks named. Prints Markdown.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from gnndist.inspection.network import Network, parse_bandwidth, parse_latency
from gnndist.inspection.prediction import Inspection, Inspector, imbalance
from gnndist.inspection.rates import Rates
from gnndist.inspection.simulate import Epoch, simulate
from gnndist.store import Store
from gnndist.training.config import TrainConfig
from gnndist.units import duration, size

INK, FAINT, GRID = "#0f172a", "#64748b", "#e2e8f0"
COLORS = ("#2563eb", "#ea580c", "#059669")
PARTS = {
    "dense and elementwise": "#60a5fa",
    "sparse": "#1d4ed8",
    "transport and overhead": "#94a3b8",
    "waiting": "#fecaca",
    "all-reduce": "#facc15",
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One number of ranks."""

    found: Inspection
    epochs: dict[str, Epoch]
    """by network"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--ranks", default="1,2,4,8,16,32,64,128,256,512,1024")
    parser.add_argument("--networks", default="10Gbit/50us,100Gbit/5us")
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    store = Store.open(options.store)
    config = TrainConfig(model=options.model, layers=options.layers, hidden=options.hidden)
    networks = {text: network_of(text) for text in options.networks.split(",")}
    inspector = Inspector(store, config, next(iter(networks.values())), Rates.of_this_machine())
    assert inspector.trace is not None
    assert inspector.costs is not None
    points = []
    for ranks in map(int, options.ranks.split(",")):
        found = inspector.at(ranks)
        epochs = {
            name: simulate(inspector.trace, found.sizes, inspector.costs, network)
            for name, network in networks.items()
        }
        points.append(Point(found=found, epochs=epochs))
    print("\n".join(table(points)))
    if options.plot is not None:
        what = f"{config.model}, {config.layers} layers of {config.hidden}"
        draw(points, f"{store.manifest.name}: {what}", options.plot)


def network_of(text: str) -> Network:
    bandwidth, latency = text.split("/")
    return Network(bandwidth=parse_bandwidth(bandwidth), latency=parse_latency(latency))


def table(points: Sequence[Point]) -> list[str]:
    """Markdown, a row a number of ranks."""
    names = list(points[0].epochs)
    head = ["ranks", "owned", "halo ÷ owned", "memory a rank", "sent, all ranks", "a rank, at most"]
    head += ["work, busiest ÷ mean", *(f"epoch, {name}" for name in names), "of it all-reduce"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    for point in points:
        found, figures = point.found, point.found.model
        assert figures is not None
        first = point.epochs[names[0]]
        cells = [
            f"{found.ranks:,}",
            f"{found.owned.mean():,.0f}",
            f"{found.halo.sum() / found.owned.sum():.2f}",
            size(figures.memory.rank.max()),
            size(figures.sent.sum()),
            size(figures.sent.sum(axis=1).max()),
            f"{imbalance(figures.epoch.busy_s):.2f}",
            *(duration(point.epochs[name].epoch_s) for name in names),
            f"{first.reduce_s.min() / first.epoch_s:.0%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def draw(points: Sequence[Point], title: str, path: Path) -> None:
    figure = Figure(figsize=(12, 8), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=13, fontweight="bold")
    (time, parts), (traffic, memory) = figure.subplots(2, 2)
    ranks = np.array([point.found.ranks for point in points])
    _times(time, ranks, points)
    _parts(parts, ranks, points)
    _lines(
        traffic,
        ranks,
        {
            "all ranks": [_model(p).sent.sum() / 1e6 for p in points],
            "busiest rank": [_model(p).sent.sum(axis=1).max() / 1e6 for p in points],
        },
        "sent an epoch, MB (none by one rank)",
    )
    _lines(
        memory,
        ranks,
        {
            "largest rank": [_model(p).memory.rank.max() / 1e9 for p in points],
            "its activations": [_model(p).memory.buffers.max() / 1e9 for p in points],
            "its graph": [_model(p).memory.graph.max() / 1e9 for p in points],
        },
        "memory, GB",
    )
    figure.savefig(path, dpi=110)


def _model(point: Point) -> Any:
    return point.found.model


def _times(axes: Any, ranks: Any, points: Sequence[Point]) -> None:
    seconds = {name: [p.epochs[name].epoch_s for p in points] for name in points[0].epochs}
    _lines(axes, ranks, seconds, "time of an epoch, s")
    first = next(iter(seconds.values()))[0]
    axes.plot(ranks, first * ranks[0] / ranks, color=FAINT, linestyle=":", label="proportional")
    axes.legend(frameon=False, labelcolor=INK)


def _parts(axes: Any, ranks: Any, points: Sequence[Point]) -> None:
    """Shares of the first network's epoch."""
    name = next(iter(points[0].epochs))
    bottom = np.zeros(len(ranks))
    at = np.arange(len(ranks))
    shares = np.array([_shares(point.epochs[name]) for point in points]).T
    for (part, color), share in zip(PARTS.items(), shares, strict=True):
        axes.bar(at, share, 0.8, bottom=bottom, color=color, label=part)
        bottom += share
    axes.set_xticks(at, [f"{r:,}" for r in ranks])
    _quiet(axes, f"share of an epoch, {name}")
    axes.legend(frameon=False, labelcolor=INK, loc="center left", bbox_to_anchor=(1, 0.5),
                reverse=True)  # fmt: skip


def _shares(epoch: Epoch) -> list[float]:
    work = {kind: float(part.mean()) for kind, part in epoch.work_s.items()}
    parts = [
        work["dense"] + work["elementwise"],
        work["sparse"],
        work["transport"] + work["overhead"],
        float(epoch.wait_s.mean()),
        float(epoch.reduce_s.mean()),
    ]
    return [part / sum(parts) for part in parts]


def _lines(axes: Any, ranks: Any, lines: dict[str, Sequence[float]], title: str) -> None:
    for (name, values), color in zip(lines.items(), COLORS, strict=False):
        positive = np.where(np.array(values) > 0, values, np.nan)
        axes.plot(ranks, positive, color=color, marker="o", markersize=4, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ranks, [f"{r:,}" for r in ranks])
    axes.grid(color=GRID)
    axes.legend(frameon=False, labelcolor=INK)
    _quiet(axes, title)


def _quiet(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", color=INK, fontsize=10)
    axes.set_xlabel("ranks", color=FAINT)
    axes.tick_params(which="both", colors=FAINT, length=0, labelsize=8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)


if __name__ == "__main__":
    main()
