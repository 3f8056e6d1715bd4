"""What will hurt on a number of ranks, and what to do about it."""

from collections.abc import Iterator

import numpy as np

from gnndist.inspection.memory import machine_memory
from gnndist.inspection.prediction import Inspection, ModelFigures, imbalance
from gnndist.store import Store

MOST_IMBALANCE = 1.10
MOST_EXPOSED = 0.25
"""share of an epoch that may go by waiting for messages, or in all-reduces"""


def warnings(store: Store, found: Inspection) -> list[str]:
    """One line each: the figure, then what helps."""
    lines = [*_partition(store, found), *_balance(store, found)]
    if found.model is not None:
        lines += [*_memory(found.model), *_time(found, found.model)]
    return lines


def _partition(store: Store, found: Inspection) -> Iterator[str]:
    cells = len(store.cell_offsets) - 1
    if found.ranks > cells:
        yield (
            f"{found.ranks} ranks cut the {cells} cells of the store: "
            f"partition again with --cells {_next_power(found.ranks)}"
        )
    more = np.flatnonzero(found.halo > found.owned)
    if len(more) and found.ranks > 1:
        worst = int(np.argmax(found.halo / np.maximum(found.owned, 1)))
        method = store.manifest.partitioning["method"]
        advice = "use fewer ranks"
        if found.model is not None and _exposed(found.model) < MOST_EXPOSED:
            advice = "its traffic hides behind computation here, less so with more ranks"
        if method in ("random", "natural"):
            advice = f"partition with --method metis instead of {method}"
        which = "all" if len(more) == found.ranks else f"{len(more)} of {found.ranks}"
        yield (
            f"{which} ranks read a halo larger than what they own (rank "
            f"{worst}: {found.halo[worst]:,} against {found.owned[worst]:,} vertices): {advice}"
        )


def _balance(store: Store, found: Inspection) -> Iterator[str]:
    cells = len(store.cell_offsets) - 1
    finer = f"partition with more cells than {cells}" if cells < store.num_vertices else ""
    remedy = {
        "work": _weights(store, found) or finer or "use fewer ranks",
        "edges": finer or "use fewer ranks",
        "send": "a rank with many neighbours waits on its link: fewer ranks, or another --seed",
        "train": "ranks with few training vertices idle where only what the loss needs is computed",
    }
    ratios = found.imbalances()
    if "work" in ratios:  # it is what counts; edges and training vertices are two of its causes
        ratios = {name: ratios[name] for name in ("work", "send")}
    for name, ratio in ratios.items():
        if ratio > MOST_IMBALANCE and found.ranks > 1:
            yield f"{name} of the busiest rank is {ratio:.2f} times the mean: {remedy[name]}"


def _weights(store: Store, found: Inspection) -> str:
    """Where another weight of vertices would balance the work better."""
    fitted = found.vertex_work
    used = int(store.manifest.partitioning["vertex_work"])
    if found.ranks > len(store.cell_edges):  # such runs are cut inside cells, whatever was balanced
        return ""
    if fitted is None or imbalance(found.owned) < MOST_IMBALANCE or fitted < 2 * max(used, 1):
        return ""
    return (
        f"a vertex costs as much as {fitted:.0f} edges here and the store was balanced for {used}: "
        f"partition again with --vertex-work {fitted:.0f}"
    )


def _memory(figures: ModelFigures) -> Iterator[str]:
    need = int(figures.memory.host(figures.network).max())
    have = machine_memory()
    if need > have:
        yield (
            f"a host needs {need / 1e9:.1f} GB of memory and this machine has {have / 1e9:.1f}: "
            "use more hosts, fewer ranks a host or a narrower model"
        )


def _time(found: Inspection, figures: ModelFigures) -> Iterator[str]:
    epoch = figures.epoch
    if found.ranks == 1 or epoch.epoch_s == 0:
        return
    waiting = _exposed(figures)
    if waiting > MOST_EXPOSED:
        yield (
            f"ranks wait for messages during {100 * waiting:.0f} % of an epoch: "
            "fewer ranks, a faster link, or several ranks a host"
        )
    reducing = float(epoch.reduce_s.min()) / epoch.epoch_s
    if reducing > MOST_EXPOSED:
        yield (
            f"all-reduces take {100 * reducing:.0f} % of an epoch: their ring has "
            f"{2 * (found.ranks - 1)} steps; fewer ranks with more threads each"
        )


def _exposed(figures: ModelFigures) -> float:
    """Share of an epoch that ranks spend waiting for messages, on average."""
    return float(figures.epoch.wait_s.mean()) / max(figures.epoch.epoch_s, 1e-12)


def _next_power(number: int) -> int:
    return 1 << (number - 1).bit_length()
