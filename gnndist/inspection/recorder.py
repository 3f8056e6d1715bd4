"""Watches a training step on one rank: torch operations, compiled kernels, messages, memory.

Nothing in the step knows of it. It records array shapes as they come; `gnndist.inspection.probe`
reads them as sizes of the rank's plan.
"""

import inspect
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gnndist.buffers import BufferPool
from gnndist.comm import Comm, Meter, Pending, Reduction
from gnndist.kernels.compiling import Kernel

Shape = tuple[int, ...]

PRODUCTS = {"mm": (0, 1), "addmm": (1, 2), "addmm_": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2)}
"""torch's dense products → which arguments are multiplied"""
ALLOCATIONS = {"empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided"}
"""operations that touch no memory"""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One operation, by the shapes of what it touched."""

    name: str
    arrays: Sequence[tuple[Shape, int]] = ()
    """(shape, bytes) of each array read or written"""
    product: tuple[int, int, int] | None = None
    """rows, inner and columns of a dense product"""
    edges: int | None = None
    """entries that a kernel walks"""
    width: int = 0
    """numbers of a row, of one head"""
    heads: int = 1
    itemsize: int = 0
    table: int = 0
    """rows that a kernel gathers from"""
    rows: int = 0
    """rows that a kernel writes"""
    sent: tuple[int, int] | None = None
    """messages sent and received in an exchange"""
    exchange: int = -1
    nbytes: int = 0


@dataclass(kw_only=True)
class Memory:
    """What a tensor, or several, lie in."""

    shape: Shape
    nbytes: int
    address: int
    pooled: bool
    """in a buffer that is used again"""


class Recorder(TorchDispatchMode):
    """Use as a context manager on the thread that runs the rank; `mark` where a step begins."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events: list[Event] = []
        self.live: list[dict[Shape, int]] = []
        """bytes alive by shape, after each event, but for buffers"""
        self.buffers: list[tuple[Memory, bool]] = []
        """buffers taken (True) and given back, in order"""
        self.marks: list[int] = []
        self._storages: dict[int, Memory] = {}
        self._at: dict[int, Shape] = {}
        self._thread = threading.get_ident()

    @property
    def storages(self) -> list[Memory]:
        """Of the tensors alive now."""
        return list(self._storages.values())

    def mark(self) -> None:
        """One part ends and the next begins here."""
        self.marks.append(len(self.events))

    def add(self, event: Event) -> None:
        self.events.append(event)
        alive: dict[Shape, int] = {}
        for storage in self._storages.values():
            if storage.pooled:
                continue
            alive[storage.shape] = alive.get(storage.shape, 0) + storage.nbytes
        self.live.append(alive)

    # --- torch ----------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        results = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        name = func.overloadpacket.__name__
        for tensor in results:
            self._keep(tensor, fresh=not func.is_view)
        if func.is_view or not results or name in ALLOCATIONS:
            return out
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        distinct = {(t.data_ptr(), tuple(t.shape)): t for t in (*inputs, *results)}
        event = Event(
            name=name,
            arrays=[(tuple(t.shape), t.numel() * t.element_size()) for t in distinct.values()],
            product=_product(name, args),
        )
        self.add(event)
        return out

    def _keep(self, tensor: Tensor, *, fresh: bool) -> Memory:
        """Note a tensor's memory until it is freed."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._storages.get(key)
        if known is None:
            known = self._storages[key] = Memory(
                shape=tuple(tensor.shape),
                nbytes=storage.nbytes(),
                address=storage.data_ptr(),
                pooled=False,
            )
            weakref.finalize(storage, self._freed, key)
        shape = tuple(tensor.shape)
        if tensor.dim() > 1 and tensor.numel() * tensor.element_size() == known.nbytes:
            known.shape = shape
        at = tensor.data_ptr()
        if tensor.dim() > 1 or fresh or at not in self._at:  # kernels take matrices as flat views
            self._at[at] = shape
        return known

    def _freed(self, key: int) -> None:
        memory = self._storages.pop(key)
        if memory.pooled:
            self.buffers.append((memory, False))

    # --- compiled kernels -----------------------------------------------------------------------

    def kernel(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        """A kernel is about to run."""
        named = dict(zip(inspect.signature(function).parameters, args, strict=False))
        arrays = {k: v for k, v in named.items() if isinstance(v, np.ndarray)}
        shapes = {k: self._shape_of(v) for k, v in arrays.items()}
        event = Event(
            name=f"{function.__module__.rpartition('.')[2]}.{function.__name__}",
            arrays=[(shapes[k], math.prod(shapes[k]) * v.itemsize) for k, v in arrays.items()],
        )
        floats = {k: v for k, v in arrays.items() if v.dtype.kind == "f" and k != "values"}
        if "indices" in arrays and floats:
            source = max(floats, key=lambda k: floats[k].size)
            table = shapes["x"] if "x" in shapes else shapes[source]
            event = Event(
                name=event.name,
                arrays=event.arrays,
                edges=len(arrays["indices"]),
                width=int(named.get("width", table[-1])),
                heads=int(named.get("heads", 1)),
                itemsize=floats[source].itemsize,
                table=table[0],
                rows=shapes["out"][0] if "out" in shapes else table[0],
            )
        self.add(event)

    def _shape_of(self, array: Any) -> Shape:
        """The shape of the tensor whose memory a kernel is given as a flat array."""
        known = self._at.get(array.__array_interface__["data"][0])
        if known is not None and math.prod(known) == array.size:
            return known
        return tuple(array.shape)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the compiled kernels and the buffers that this recorder's thread asks for."""
        call, empty = Kernel.__call__, BufferPool.empty

        def watched(kernel: Kernel, variant: Any) -> Callable[..., Any]:
            compiled = call(kernel, variant)

            def run(*args: Any) -> Any:
                if threading.get_ident() == self._thread:
                    self.kernel(kernel.dispatcher.py_func, args)
                return compiled(*args)

            return run

        def taken(pool: BufferPool, *args: Any, **kwargs: Any) -> Tensor:
            buffer = empty(pool, *args, **kwargs)
            if threading.get_ident() == self._thread:
                memory = self._keep(buffer, fresh=True)
                memory.pooled = True
                self.buffers.append((memory, True))
            return buffer

        with (
            patch.object(Kernel, "__call__", watched),
            patch.object(BufferPool, "empty", taken),
        ):
            yield


def _product(name: str, args: Sequence[Any]) -> tuple[int, int, int] | None:
    if name not in PRODUCTS:
        return None
    a, b = (args[at] for at in PRODUCTS[name])
    batch = a.shape[0] if a.dim() == 3 else 1
    return batch * a.shape[-2], a.shape[-1], b.shape[-1]


class RecordedComm:
    """A rank's `Comm` whose messages a recorder is told of."""

    def __init__(self, comm: Comm, recorder: Recorder) -> None:
        self._comm = comm
        self._recorder = recorder
        self._exchanges = 0
        self.rank = comm.rank
        self.world = comm.world

    @property
    def meter(self) -> Meter:
        return self._comm.meter

    def start(self, sends: Sequence[Tensor], receives: Sequence[Tensor]) -> Pending:
        self._exchanges += 1
        sent, received = (sum(len(t) for t in side) for side in (sends, receives))
        size = next((t.nbytes // len(t) for t in (*sends, *receives) if len(t)), 0)
        self._recorder.add(
            Event(name="depart", sent=(sent, received), exchange=self._exchanges, nbytes=size)
        )
        with _unwatched():
            pending = self._comm.start(sends, receives)
        return _RecordedPending(pending, self._recorder, self._exchanges)

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        self._recorder.add(Event(name="reduce", nbytes=tensor.nbytes))
        with _unwatched():
            self._comm.all_reduce(tensor, op)

    def all_gather(self, value: Any) -> list[Any]:
        with _unwatched():
            return self._comm.all_gather(value)

    def swap(self, values: Sequence[Any]) -> list[Any]:
        with _unwatched():
            return self._comm.swap(values)


class _RecordedPending:
    def __init__(self, pending: Pending, recorder: Recorder, exchange: int) -> None:
        self._pending = pending
        self._recorder = recorder
        self._exchange = exchange

    def wait(self) -> None:
        self._recorder.add(Event(name="arrive", exchange=self._exchange))
        with _unwatched():
            self._pending.wait()


@contextmanager
def _unwatched() -> Iterator[None]:
    """What the transport does is no work of the rank's."""
    with torch._C._DisableTorchDispatch():
        yield
