"""A training step as data: what it multiplies, gathers, reads, sends and keeps, by kind of row.

Every amount is linear in a few sizes of a rank's plan (its rows, edges, messages, …), so a step
recorded once on a small graph says what it costs on any rank of any store.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnndist.inspection.counts import Counts, ViewCounts

Kind = Literal[
    "owned",
    "owned edges",
    "vertices",
    "boundary",
    "interior",
    "receiving",
    "quiet",
    "sent",
    "received",
    "gathered",
    "local",
    "looped",
    "send",
    "receive",
    "edges",
    "looped edges",
]


@dataclass(frozen=True, kw_only=True)
class RankSizes:
    """The sizes of every rank's plans, for one number of ranks."""

    whole: ViewCounts
    """from all vertices to all"""
    views: Sequence[ViewCounts]
    """what a training step uses, in its order"""

    @property
    def ranks(self) -> int:
        return len(self.whole.rows)

    def view(self, at: int) -> ViewCounts:
        return self.whole if at == WHOLE else self.views[at]


WHOLE = -1
"""in place of a view's number: the whole graph, as evaluation uses it"""


class Size(NamedTuple):
    """A size of a plan. `view` counts aggregations from 0; "vertices" of view k are its columns,
    and the rows of view k − 1."""

    kind: Kind
    view: int = WHOLE
    cover: bool = False

    def of(self, sizes: RankSizes) -> NDArray[np.float64]:
        """[ranks] the size on every rank."""
        if self.kind == "owned":
            found = sizes.whole.rows
        elif self.kind == "owned edges":
            found = sizes.whole.local_edges + sizes.whole.cut_edges
        elif self.kind == "vertices" and self.view == len(sizes.views):
            found = sizes.views[-1].rows
        elif self.kind == "vertices":
            found = sizes.view(self.view).columns
        else:
            found = _of_view(self, sizes.view(self.view))
        return found.astype(np.float64)


def _of_view(size: Size, view: ViewCounts) -> NDArray[np.int64]:
    messages = view.cover if size.cover else view.plain
    whole = np.array_equal(view.rows, view.columns)
    boundary = view.boundary if whole else view.senders
    receiving = view.boundary if whole else view.receivers
    found: Mapping[Kind, NDArray[np.int64]] = {
        "boundary": boundary,
        "interior": view.columns - boundary,
        "receiving": receiving,
        "quiet": view.rows - receiving,
        "sent": messages.sent,
        "received": messages.received,
        "gathered": view.columns + view.plain.received,
        "local": view.local_edges,
        "looped": view.local_edges + view.unlooped,
        "send": messages.send_entries,
        "receive": messages.receive_entries,
        "edges": view.local_edges + view.cut_edges,
        "looped edges": view.local_edges + view.unlooped + view.cut_edges,
    }
    return found[size.kind]


Amount = Mapping[Size | None, float]
"""A linear form: so much for each of a size; under None, a constant."""


def total(amount: Amount, sizes: RankSizes) -> NDArray[np.float64]:
    """[ranks] the amount on every rank."""
    found = np.zeros(sizes.ranks)
    for size, each in amount.items():
        found += each if size is None else each * size.of(sizes)
    return found


@dataclass(frozen=True, kw_only=True)
class Product:
    """A dense product of 2 · rows · k · n operations."""

    rows: Size | None
    flops: float
    """of one row"""
    k: int
    n: int
    inner: bool
    """the rows are summed over (a weight's gradient)"""


@dataclass(frozen=True, kw_only=True)
class Gather:
    """A sparse product, or another kernel that walks edges."""

    entries: Size | None
    width: int
    """numbers of a row, of one head"""
    heads: int
    itemsize: int
    table: Size | None
    """rows gathered from"""
    rows: Size | None
    """rows written"""
    kernel: str


@dataclass(frozen=True, kw_only=True)
class Stream:
    """An operation that reads and writes each of its arrays once."""

    traffic: Amount
    """bytes"""
    fused: bool
    """one of this package's compiled kernels"""


@dataclass(frozen=True, kw_only=True)
class Depart:
    """Messages leave."""

    exchange: int
    view: int
    cover: bool
    backward: bool
    message_bytes: int

    @property
    def messages(self) -> Size:
        return Size("received" if self.backward else "sent", self.view, self.cover)


@dataclass(frozen=True, kw_only=True)
class Arrive:
    """Messages are waited for."""

    exchange: int


@dataclass(frozen=True, kw_only=True)
class Reduce:
    """An all-reduce."""

    nbytes: int


Operation = Product | Gather | Stream | Depart | Arrive | Reduce


@dataclass(frozen=True, kw_only=True)
class StepTrace:
    """A model's training step, from the second epoch on."""

    layers: int
    """views of the graph"""
    layered: bool
    """each layer computes just what the next one needs; otherwise everything"""
    operations: Sequence[Operation]
    once: Sequence[Depart]
    """what only the first epoch sends"""
    evaluation: Sequence[Operation]
    """predicting every vertex and the metrics of it"""
    memory: Sequence[Amount]
    """bytes in tensors, after each operation from loading to the second step, but for buffers"""
    buffers: Sequence[tuple[int, Amount, bool]]
    """(number, bytes, whether taken or given back) of buffers that are used again, in order"""
    graph_memory: Amount
    """bytes of the graph: adjacency, plans, sparse matrices"""
    parameters: int
    """numbers that are learnt"""
    unexplained: Sequence[str]
    """shapes of arrays that hold no size of the plan: weights, and what the trace fails to see"""

    def bytes_sent(self, sizes: RankSizes) -> Counts:
        """[ranks, ranks] bytes an epoch, from the rank of the row to the rank of the column."""
        return _bytes(self.operations, sizes)

    def bytes_sent_once(self, sizes: RankSizes) -> Counts:
        """What the first epoch sends besides, likewise."""
        return _bytes(self.once, sizes)

    def bytes_sent_evaluating(self, sizes: RankSizes) -> Counts:
        """What an evaluation sends, likewise."""
        return _bytes(self.evaluation, sizes)


def _bytes(operations: Sequence[Operation], sizes: RankSizes) -> Counts:
    pairs = np.zeros((sizes.ranks, sizes.ranks), np.int64)
    for op in operations:
        if isinstance(op, Depart):
            pairs += op.message_bytes * pairs_of(op, sizes)
    return pairs


def pairs_of(op: Depart, sizes: RankSizes) -> Counts:
    """[ranks, ranks] messages of one exchange."""
    view = sizes.view(op.view)
    pairs = (view.cover if op.cover else view.plain).pairs
    return pairs.T if op.backward else pairs
