"""What `gnndist partition` says while it works and at its end."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich import box, filesize
from rich.console import Console
from rich.progress import Progress, TaskID, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from gnndist.graph import Graph
    from gnndist.plan.summary import RankCountSummary
    from gnndist.store import Store

PATIENCE_S = 2.0
"""how long a stage may take before a bar appears"""
LINE_EVERY_S = 10.0
"""how often there is a line where the output is not a terminal"""

console = Console(highlight=False, soft_wrap=True)


def say(line: str) -> None:
    """One line for the person who runs the command."""
    console.print(line, markup=False)


class ProgressLine:
    """Shows stages that take longer than two seconds: a bar on a terminal, else lines."""

    def __init__(self) -> None:
        self._progress = Progress(
            *Progress.get_default_columns(), TimeElapsedColumn(), console=console, transient=True
        )
        self._stage = ""
        self._task: TaskID | None = None
        self._since = 0.0
        self._last_line = 0.0

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._progress.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """`done` of `total` steps of `stage`."""
        now = time.monotonic()
        if stage != self._stage:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._stage, self._task, self._since, self._last_line = stage, None, now, now
        if now - self._since < PATIENCE_S:
            return
        if console.is_terminal:
            self._bar(done, total)
        elif now - self._last_line >= LINE_EVERY_S and total:
            self._last_line = now
            say(f"{stage}: {100 * done // total} %")

    def _bar(self, done: int, total: int) -> None:
        if self._task is None:
            self._progress.start()
            self._task = self._progress.add_task(self._stage, total=total or None)
        self._progress.update(self._task, completed=done, total=total or None)


def say_graph(graph: "Graph") -> None:
    """What was read, and what became of the edges."""
    parts = [f"{graph.num_vertices:,} vertices", f"{graph.num_edges:,} edges"]
    if graph.features is not None:
        parts.append(f"{graph.num_features:,} features")
    if graph.labels is not None:
        parts.append(f"{graph.num_classes} {_TASK_COLUMNS[graph.task]}")
    say(f"{graph.name}: {', '.join(parts)}")
    counts = graph.edge_counts
    if counts is not None:
        say(
            f"  edges: {counts.read:,} read, {counts.duplicates:,} duplicates merged, "
            f"{counts.reversed:,} reverses added, {counts.self_loops:,} self-loops kept"
        )
    if graph.splits:
        sizes = ", ".join(f"{name} {len(ids):,}" for name, ids in graph.splits.items())
        say(f"  split: {sizes}")


def say_estimate(graph: "Graph", method: str | None, cells: int | None) -> None:
    """What partitioning will take, where that is long enough to be told."""
    from gnndist.partitioning import DEFAULT, estimate

    method = method or DEFAULT
    needed = estimate(graph, method, cells)
    if needed.seconds > PATIENCE_S:
        say(
            f"partitioning by {method}: about {needed.seconds:,.0f} s "
            f"and {filesize.decimal(needed.memory)} of memory"
        )


_TASK_COLUMNS = {"single-label": "classes", "multi-label": "labels", "regression": "targets"}


def say_store(store: "Store", summary: Sequence["RankCountSummary"], seconds: float) -> None:
    """The store that was written, and what it means for some numbers of ranks."""
    manifest = store.manifest
    size = filesize.decimal(sum(entry.size for entry in manifest.files.values()))
    cells = len(store.cell_edges)
    say(
        f"wrote {store.path}: {store.num_vertices:,} vertices, {store.num_edges:,} edges, "
        f"{cells} {'cell' if cells == 1 else 'cells'} by {manifest.partitioning['method']}, "
        f"{size}, {seconds:.1f} s"
    )
    table = Table(
        "ranks",
        "halo ÷ vertices",
        "work imbalance",
        "edge imbalance",
        "train imbalance",
        box=box.SIMPLE,
        caption="imbalance: busiest rank ÷ mean rank",
        caption_justify="left",
    )
    for line in summary:
        table.add_row(
            str(line.ranks),
            f"{line.halo_fraction:.3f}",
            f"{line.work_imbalance:.3f}",
            f"{line.edge_imbalance:.3f}",
            f"{line.train_imbalance:.3f}" if manifest.split_sizes["train"] else "–",
        )
    if summary:
        console.print(table)
