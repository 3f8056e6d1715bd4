"""An inspection as tables for a terminal and as plain data for scripts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from gnndist.inspection.prediction import Inspection, ModelFigures, imbalance
from gnndist.inspection.simulate import KINDS
from gnndist.units import duration, size

MOST_RANKS = 16
"""ranks that are listed one by one"""
NAMES_WIDTH, COLUMN_WIDTH = 26, 12
MOST_PAIRS = 1 << 16
"""pairs of ranks up to which plain data names each of them"""


def tables(found: Sequence[Inspection], width: int) -> Iterator[Table]:
    """All inspections, as many beside each other as fit into `width` characters."""
    beside = max((width - NAMES_WIDTH) // COLUMN_WIDTH, 1)
    for start in range(0, len(found), beside):
        yield _table(found[start : start + beside], found[0])


def _table(found: Sequence[Inspection], base: Inspection) -> Table:
    """A column a number of ranks: what the graph imposes, and what an epoch would cost."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("ranks", no_wrap=True)
    for one in found:
        table.add_column(f"{one.ranks:,}", justify="right")
    for name, figure in GRAPH_ROWS.items():
        table.add_row(name, *(figure(one) for one in found))
    if found[0].model is not None:
        table.add_section()
        for name, model_figure in EPOCH_ROWS.items():
            figures = [one.model for one in found if one.model is not None]
            table.add_row(name, *(model_figure(each) for each in figures))
        first = 0.0 if base.model is None else base.model.epoch.epoch_s
        table.add_row("speed-up", *(f"{first / each.epoch.epoch_s:.2f}" for each in figures))
        weights = [one.vertex_work for one in found]
        table.add_row("a vertex costs, in edges", *(f"{w:.0f}" if w else "–" for w in weights))
    return table


def work_table(found: Sequence[Inspection]) -> Table | None:
    """Each rank's work, a column a number of ranks; None where there is no model, or too many."""
    shown = {
        one.ranks: one.model.epoch.core_s
        for one in found
        if one.model is not None and 1 < one.ranks <= MOST_RANKS
    }
    if not shown:
        return None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("work of rank", no_wrap=True)
    for ranks in shown:
        table.add_column(f"of {ranks}", justify="right")
    for rank in range(max(shown)):
        cells = (duration(float(s[rank])) if rank < len(s) else "" for s in shown.values())
        table.add_row(str(rank), *cells)
    table.add_section()
    table.add_row("busiest ÷ mean", *(f"{imbalance(s):.2f}" for s in shown.values()))
    table.caption, table.caption_justify = "processor seconds of an epoch", "left"
    return table


def _mean(figure: str) -> Callable[[Inspection], str]:
    return lambda one: f"{getattr(one, figure).mean():,.0f}"


def _ratio(name: str) -> Callable[[Inspection], str]:
    return lambda one: f"{one.imbalances()[name]:.2f}"


def _halo_share(one: Inspection) -> str:
    return f"{one.halo.sum() / one.owned.sum():.2f}"


def _covered_share(one: Inspection) -> str:
    return f"{one.covered.sum() / one.halo.sum():.2f}" if one.halo.any() else "–"


def _messages(one: Inspection) -> str:
    pairs = one.sizes.whole.cover.pairs
    talking = pairs[pairs > 0]
    return f"{talking.mean():,.0f}" if len(talking) else "–"


def _most_messages(one: Inspection) -> str:
    return f"{one.sizes.whole.cover.pairs.max():,}"


def _peers(one: Inspection) -> str:
    return f"{(one.sizes.whole.cover.pairs > 0).sum(axis=1).mean():.1f}"


GRAPH_ROWS: Mapping[str, Callable[[Inspection], str]] = {
    "owned": _mean("owned"),
    "edges": _mean("edges"),
    "halo": _mean("halo"),
    "  ÷ owned": _halo_share,
    "messages (covered)": _mean("covered"),
    "  ÷ halo": _covered_share,
    "  a pair": _messages,
    "  a pair, at most": _most_messages,
    "ranks it talks to": _peers,
    "busiest ÷ mean: edges": _ratio("edges"),
    "  training vertices": _ratio("train"),
    "  sent": _ratio("send"),
}
"""means over ranks"""


def _work(kind: str) -> Callable[[ModelFigures], str]:
    return lambda figures: duration(figures.epoch.work_s[kind].mean())


EPOCH_ROWS: Mapping[str, Callable[[ModelFigures], str]] = {
    "memory, largest rank": lambda f: size(f.memory.rank.max()),
    "  features, weights": lambda f: size(f.memory.tensors.max()),
    "  activations": lambda f: size(f.memory.buffers.max()),
    "  graph": lambda f: size(f.memory.graph.max()),
    "sent, all ranks": lambda f: size(f.sent.sum()),
    "  busiest rank": lambda f: size(f.sent.sum(axis=1).max()),
    "time of an epoch": lambda f: duration(f.epoch.epoch_s),
    **{f"  {kind}": _work(kind) for kind in KINDS},
    "  waiting": lambda f: duration(f.epoch.wait_s.mean()),
    "  all-reduce": lambda f: duration(f.epoch.reduce_s.mean()),
    "busiest ÷ mean: work": lambda f: f"{imbalance(f.epoch.busy_s):.2f}",
}
"""times are means over ranks"""


def as_data(found: Inspection, warnings: Sequence[str]) -> dict[str, Any]:
    """Everything, as what JSON holds."""
    whole = found.sizes.whole
    data: dict[str, Any] = {
        "ranks": found.ranks,
        "first_vertex": found.runs[:-1].tolist(),
        "owned": found.owned.tolist(),
        "edges": found.edges.tolist(),
        "train": found.train.tolist(),
        "halo": found.halo.tolist(),
        "covered": found.covered.tolist(),
        "halo_fraction": float(found.halo.sum() / found.owned.sum()),
        "imbalance": found.imbalances(),
        "warnings": list(warnings),
    }
    data["pairs"] = _pairs(
        {"plain": whole.plain.pairs, "covered": whole.cover.pairs}
        | ({} if found.model is None else {"bytes": found.model.sent})
    )
    if found.model is not None:
        data["epoch"] = _epoch(found.model)
        data["vertex_work"] = found.vertex_work
    return data


def _epoch(figures: ModelFigures) -> dict[str, Any]:
    epoch, memory = figures.epoch, figures.memory
    return {
        "epoch_s": epoch.epoch_s,
        "work_s": {kind: epoch.work_s[kind].tolist() for kind in KINDS},
        "core_s": epoch.core_s.tolist(),
        "wait_s": epoch.wait_s.tolist(),
        "reduce_s": epoch.reduce_s.tolist(),
        "bytes_sent": int(figures.sent.sum()),
        "bytes_sent_by_rank": figures.sent.sum(axis=1).tolist(),
        "bytes_sent_once": figures.sent_once,
        "bytes_sent_evaluating": figures.sent_evaluating,
        "send_imbalance": imbalance(figures.sent.sum(axis=1)),
        "memory": {
            "rank": memory.rank.tolist(),
            "tensors": memory.tensors.tolist(),
            "buffers": memory.buffers.tolist(),
            "graph": memory.graph.tolist(),
            "process": memory.process,
            "host": memory.host(figures.network).tolist(),
        },
    }


def _pairs(matrices: dict[str, Any]) -> dict[str, list[int]] | None:
    """Lists by pair of ranks that exchange anything; None for too many pairs."""
    any_of = np.sum([matrix > 0 for matrix in matrices.values()], axis=0) > 0
    if np.count_nonzero(any_of) > MOST_PAIRS:
        return None
    sender, receiver = np.nonzero(any_of)
    found = {"from": sender.tolist(), "to": receiver.tolist()}
    return found | {name: matrix[any_of].tolist() for name, matrix in matrices.items()}
