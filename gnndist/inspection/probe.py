"""One training step of a model on two ranks of a small graph, recorded: the model as data.

The step is the trainer's own, so whatever a model and the loop really do (which side of a product
goes first, what is propagated once, what is exchanged at which width) is what gets recorded.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

import numpy as np
import torch

from gnndist import buffers
from gnndist.comm import Comm, SingleComm
from gnndist.graph import Graph, Task
from gnndist.inspection.chunks import active_rows
from gnndist.inspection.counts import Counts, count_views
from gnndist.inspection.held import held_arrays
from gnndist.inspection.operations import WHOLE, Kind, RankSizes, Size, StepTrace
from gnndist.inspection.reading import read_step
from gnndist.inspection.recorder import RecordedComm, Recorder
from gnndist.inspection.threads import run_threads
from gnndist.plan import RankPlan
from gnndist.rankgraph import RankGraph
from gnndist.store import Store, write_store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer

TIMED_STEPS = 30
FEATURES = 8e6
"""numbers in the features of a rank of the recorded graph, about"""
ATTEMPTS = 16
"""graphs tried for one whose plan's sizes all differ"""


class Data(Protocol):
    """What shapes a model besides its options: a store's manifest, or a `Graph`, says it."""

    @property
    def num_features(self) -> int: ...
    @property
    def num_classes(self) -> int: ...
    @property
    def task(self) -> Task: ...
    @property
    def weighted(self) -> bool: ...


def trace_step(data: Data, config: TrainConfig) -> StepTrace:
    """Record the steady training step of a model on a small graph with such data.

    Buffers are used again however small they are, as they will be on a large graph.

    Parameters
    ----------
    data:
        feature width, classes, task, whether edges have weights.
    config:
        the model and everything else that shapes a step.
    """
    every_buffer = patch.object(buffers, "SMALLEST", 1)
    with tempfile.TemporaryDirectory() as folder, _one_thread(), every_buffer:
        store, runs = _small_store(data, Path(folder), config)
        traces = run_threads(lambda comm: _steps(comm, store, runs, config), 2)
    trace = traces[0]
    assert trace is not None
    return trace


def step_overhead(data: Data, config: TrainConfig) -> float:
    """Seconds of a step on next to no vertices, of one rank alone on one thread."""
    with tempfile.TemporaryDirectory() as folder, _one_thread():
        graph = _graph(data, np.random.default_rng(0), half=24, depth=1)
        store = write_store(graph, Path(folder) / "store", method="natural", cells=1)
        trainer = Trainer.create(store, config, SingleComm(), torch.device("cpu"))
        seconds = []
        for epoch in range(1, TIMED_STEPS + 1):
            start = time.thread_time()
            trainer.step(epoch)
            seconds.append(time.thread_time() - start)
    return min(seconds)


def _steps(comm: Comm, store: Store, runs: Counts, config: TrainConfig) -> StepTrace | None:
    """A step, two evaluations and a step; rank 0 returns what it recorded."""
    recorder = Recorder() if comm.rank == 0 else None
    with ExitStack() as watching:
        if recorder is not None:
            watching.enter_context(recorder)
            watching.enter_context(recorder.watching())
            comm = RecordedComm(comm, recorder)
        mark = recorder.mark if recorder is not None else lambda: None
        trainer = Trainer.create(store, config, comm, torch.device("cpu"), runs=runs)
        mark()
        trainer.step(1)
        mark()
        trainer.evaluate()  # what it computes once is computed here
        mark()
        trainer.evaluate()
        mark()
        trainer.step(2)
        mark()
        arrays = list(held_arrays(trainer.shard.graph, trainer.graph))
    sizes, views = _sizes(trainer)
    if recorder is None:
        return None
    return read_step(
        recorder,
        arrays,
        sizes,
        layers=views,
        layered=bool(trainer.graph.views),
        parameters=[p for p in trainer.model.parameters() if p.requires_grad],
    )


def _sizes(trainer: Trainer) -> tuple[dict[Size, int], int]:
    """Every size of this rank's plans, and how many views there are (collective)."""
    views: list[RankGraph] = list(trainer.graph.views) or [trainer.graph]
    sizes: dict[Size, int] = {}
    for at, view in enumerate(views):
        sizes |= _plan_sizes(at, view.plan(cover=False), view.plan(cover=True))
    whole = trainer.shard.graph
    if trainer.graph.views:
        sizes[Size("vertices", len(views))] = len(views[-1].plan(cover=False).rows)
        sizes |= _plan_sizes(WHOLE, whole.plan(cover=False), whole.plan(cover=True))
    sizes[Size("owned")] = len(trainer.shard.original_ids)
    sizes[Size("owned edges")] = len(whole.part.adjacency.indices)
    return sizes, len(views)


def _plan_sizes(view: int, plain: RankPlan, cover: RankPlan) -> dict[Size, int]:
    rows, columns = len(plain.rows), len(plain.columns)
    loops = np.count_nonzero(plain.local.indices == plain.row_at[plain.local.row_of_entry()])
    looped = plain.local.nnz + rows - int(loops)
    sizes = {
        Size("vertices", view): columns,
        Size("boundary", view): plain.num_boundary,
        Size("interior", view): columns - plain.num_boundary,
        Size("gathered", view): columns + plain.receive.num_columns,
        Size("local", view): plain.local.nnz,
        Size("looped", view): looped,
        Size("edges", view): plain.local.nnz + plain.receive.nnz,
        Size("looped edges", view): looped + plain.receive.nnz,
    }
    for way, plan in ((False, plain), (True, cover)):
        sizes[Size("receiving", view, way)] = plan.num_receiving
        sizes[Size("quiet", view, way)] = rows - plan.num_receiving
        sizes[Size("sent", view, way)] = plan.send.num_rows
        sizes[Size("received", view, way)] = plan.receive.num_columns
        sizes[Size("send", view, way)] = plan.send.nnz
        sizes[Size("receive", view, way)] = plan.receive.nnz
    return sizes


def _small_store(data: Data, folder: Path, config: TrainConfig) -> tuple[Store, Counts]:
    """A store whose plan's sizes can be told from each other and from the model's widths."""
    multiples = range(1, max(config.layers, config.heads, 2) + 2)
    widths = {config.hidden * times for times in multiples}
    widths |= {data.num_features, data.num_classes, 1, 2}
    depth = max(config.layers, config.hops, 10 if config.model == "appnp" else 0)
    # Larger sizes are more rarely equal; but the features should not take long to make.
    size = int(np.clip(FEATURES / data.num_features, 600, 4000))
    best: tuple[int, Store, Counts] | None = None
    for attempt in range(ATTEMPTS):
        half = size + 31 * attempt
        graph = _graph(data, np.random.default_rng(attempt), half, depth)
        store = write_store(graph, folder / str(attempt), method="natural", cells=1)
        runs = np.array([0, half, 2 * half])
        clashes = _clashes(store, runs, depth, widths)
        if best is None or clashes < best[0]:
            best = (clashes, store, runs)
        if clashes == 0:
            break
    assert best is not None
    return best[1], best[2]


def _clashes(store: Store, runs: Counts, layers: int, widths: set[int]) -> int:
    """How many of rank 0's sizes equal another or a width, where any two could be mistaken."""
    active = active_rows(store, layers)
    masks = [(active[k + 1], active[k]) for k in range(layers)]
    whole, *views = count_views(store, runs, [(None, None), *masks])
    sizes = RankSizes(whole=whole, views=views)
    numbers = Counter(
        int(Size(kind, view, cover).of(sizes)[0])
        for view in (WHOLE, *range(layers))
        for kind, cover in DISTINCT
    )
    clashes = sum(n - 1 for n in numbers.values()) + sum(numbers[w] for w in widths)
    exchanges = [
        (int(messages.sent[0]), int(messages.received[0]))
        for view in (whole, *views)
        for messages in (view.plain, view.cover)
    ]
    either_way = {pair for a, b in exchanges for pair in ((a, b), (b, a))}
    # Which exchange is which must never be in doubt.
    return clashes + 100 * (2 * len(exchanges) - len(either_way))


DISTINCT: Sequence[tuple[Kind, bool]] = (
    *(("vertices", False), ("boundary", False), ("interior", False), ("gathered", False)),
    *(("local", False), ("looped", False), ("edges", False), ("looped edges", False)),
    *(("sent", True), ("received", True), ("send", True), ("receive", True)),
    *(("received", False), ("receive", False)),
)
"""kinds of sizes (and whether of covered messages) that differ on a graph of any interest"""


def _graph(data: Data, rng: np.random.Generator, half: int, depth: int) -> Graph:
    """Two lines of `half` vertices, one a rank, whose edges reach a few places back on both.

    What the training vertices need so grows by a few places a layer and does not fill the graph.
    The last places read nothing of the other line: rows that receive nothing, wherever rows that
    receive come first.
    """
    place, crossing = np.arange(half), np.arange(half - max(half // 10, 8))
    ends = []
    for mine, other in ((0, half), (half, 0)):
        for step, share, start in ((1, 0.8, mine), (2, 0.3, mine), (1, 0.3, other)):
            among = place[:-step] if start == mine else crossing
            row = among[rng.random(len(among)) < share]
            ends.append((start + row + step, mine + row))
        # Sources that many read and rows that read many: covers that differ from plain rows.
        row = crossing[rng.random(len(crossing)) < 0.3]
        ends.append((other + row - row % 7 + 7, mine + row))
        row = np.repeat(crossing[::11], 5)
        ends.append((other + row + np.tile(np.arange(1, 6), len(row) // 5), mine + row))
    edge_index = np.concatenate([np.stack(pair) for pair in ends], axis=1)
    vertices = 2 * half
    shape = (vertices,) if data.task == "single-label" else (vertices, data.num_classes)
    labels = rng.integers(0, 2 if data.task == "multi-label" else max(data.num_classes, 1), shape)
    often = 4 * (depth + 2)
    train = np.flatnonzero(rng.random(vertices) < 1 / often)
    return Graph.from_edge_index(
        edge_index,
        num_vertices=vertices,
        edge_weight=np.ones(edge_index.shape[1], np.float32) if data.weighted else None,
        symmetrize=False,
        features=rng.standard_normal((vertices, data.num_features)).astype(np.float32),
        labels=labels if data.task == "single-label" else labels.astype(np.float32),
        num_classes=data.num_classes,
        task=data.task,
        splits={"train": train if len(train) else np.array([0])},
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """So that a kernel is called once for all rows."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
