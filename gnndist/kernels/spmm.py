"""Sparse times dense: out = A x, the product that carries features along edges.

On the CPU, a row's neighbours are walked in tiles, and over each tile, blocks of 64 bytes to 256
bytes of features are summed in registers: `out` is written once a tile, and the loads of several
neighbours are in flight at a time. Wide rows are announced to the memory a few neighbours ahead by
their first cache line; the hardware follows from there (asking for every line was slower, and for
narrow rows any asking was). A matrix without locality is walked in several passes, one for each
run of columns that the cache can hold. Sums run in the order of the row's entries, always.
"""

import warnings
from typing import Any

import torch
from numba import types
from numba.extending import overload
from torch import Tensor

from gnndist.kernels.arithmetic import add, multiply_add
from gnndist.kernels.compiling import Kernel
from gnndist.kernels.csr import CSR
from gnndist.kernels.dense import FLOATS, check_output, flat
from gnndist.kernels.threads import run_chunks
from gnndist.kernels.vector import (
    item,
    load,
    load_first,
    opaque,
    prefetch,
    store,
    store_first,
    zeros,
)
from gnndist.ranges import SPARSE, ranged

AHEAD = 4
"""How many neighbours ahead a wide row's first cache line is asked for."""

WIDE = 12
"""From how many units of 64 bytes on a row is wide."""

TILE = 64
"""Neighbours walked at a time: their rows stay in the cache from one block to the next."""


def _walk(
    units: Any,
    tail: Any,
    graph: Any,
    x: Any,
    out: Any,
    f: Any,
    span: Any,
    extra: Any,
    ask: Any,
) -> None:
    """Add one row's neighbours `first` … `last` into one block of its features.

    The block has `units` × 64 bytes and `extra` numbers more where `tail` is 1. Both are literals:
    each pair is a loop of its own with its sums in registers. `ask`: prefetch.
    """
    raise NotImplementedError("for use inside numba")


@overload(_walk, prefer_literal=True)  # type: ignore[untyped-decorator]
def _overload_walk(
    units: Any,
    tail: Any,
    graph: Any,
    x: Any,
    out: Any,
    f: Any,
    span: Any,
    extra: Any,
    ask: Any,
) -> Any:
    unit = 512 // x[0].dtype.bitwidth
    weighted = not isinstance(graph[1], types.NoneType)
    full, part = units.literal_value, tail.literal_value
    lanes, some, some_part = full * unit, max(full, 1), max(part, 1)  # a vector needs a lane

    def walk(
        units: Any,
        tail: Any,
        graph: Any,
        x: Any,
        out: Any,
        f: Any,
        span: Any,
        extra: Any,
        ask: Any,
    ) -> None:
        (indices, values), (rows, stride), (sums, place) = graph, x, out
        first, last, end, fresh = span
        total = zeros(rows, some)
        rest = zeros(rows, some_part)
        if full:  # noqa: SIM102 (nested, so that numba drops it where full is 0)
            if not fresh:
                total = load(sums, place + f, full)
        if part:  # noqa: SIM102
            if not fresh:
                rest = load_first(sums, place + f + lanes, part, extra)
        entry = first
        while entry < last:
            if ask:
                prefetch(rows, item(indices, min(entry + AHEAD, end)) * stride)
            source = item(indices, entry) * stride + f
            if weighted:
                weight = item(values, entry)
                if full:
                    total = multiply_add(weight, load(rows, source, full), total)
                if part:
                    last_lanes = load_first(rows, source + lanes, part, extra)
                    rest = multiply_add(weight, last_lanes, rest)
            else:
                if full:
                    total = add(total, load(rows, source, full))
                if part:
                    rest = add(rest, load_first(rows, source + lanes, part, extra))
            entry = opaque(entry + 1)
        if full:
            store(sums, place + f, total)
        if part:
            store_first(sums, place + f + lanes, rest, extra)

    return walk


def _rows(
    starts: Any,
    stops: Any,
    indices: Any,
    values: Any,
    x: Any,
    x_stride: Any,
    out: Any,
    out_stride: Any,
    width: Any,
    first_row: Any,
    last_row: Any,
    accumulate: Any,
    announce: Any,
) -> None:
    unit = 64 // x.itemsize
    end = len(indices) - 1
    graph, source = (indices, values), (x, x_stride)
    for row in range(first_row, last_row):
        first, stop = item(starts, row), item(stops, row)
        sums = (out, row * out_stride)
        fresh = not accumulate
        while fresh or first < stop:
            last = min(first + TILE, stop)
            span = (first, last, end, fresh)
            ask = announce and width >= WIDE * unit  # the first block's walk prefetches for all
            f = 0
            while f + 4 * unit <= width:
                _walk(4, 0, graph, source, sums, f, span, 0, ask)
                f += 4 * unit
                ask = False
            rest = width - f
            if rest > 3 * unit:
                _walk(3, 1, graph, source, sums, f, span, rest - 3 * unit, False)
            elif rest > 2 * unit:
                _walk(2, 1, graph, source, sums, f, span, rest - 2 * unit, False)
            elif rest > unit:
                _walk(1, 1, graph, source, sums, f, span, rest - unit, False)
            elif rest > 0:
                _walk(0, 1, graph, source, sums, f, span, rest, False)
            fresh = False
            first = last


def _signature(dtype: torch.dtype, weighted: bool) -> Any:
    floats, ints, longs = FLOATS[dtype][::1], types.int32[::1], types.int64[::1]
    values, n = floats if weighted else types.none, types.int64
    return types.void(
        *(longs, longs, ints, values, floats, n, floats, n, n, n, n),
        *(types.boolean, types.boolean),
    )


SPMM = Kernel(
    _rows,
    {
        (dtype, weighted): _signature(dtype, weighted)
        for dtype in FLOATS
        for weighted in (False, True)
    },
)


@ranged(SPARSE)
def spmm(csr: CSR, x: Tensor, out: Tensor | None = None, accumulate: bool = False) -> Tensor:
    """out = A x, or out += A x.

    Parameters
    ----------
    csr:
        [rows, cols]; values, where it has them, of x's type.
    x:
        float32 or float64 [cols, F]; a view with unit stride inside rows is used as it is.
    out:
        [rows, F] of x's type, likewise; made where not given. Must not overlap x.
    accumulate:
        add to what `out` holds.

    Raises
    ------
    ValueError
        where shapes, types or devices do not fit.
    """
    _check(csr, x, out, accumulate)
    rows, width = csr.num_rows, x.shape[1]
    if out is None:
        out = x.new_empty((rows, width))
    if x.device.type != "cpu":
        return spmm_torch(csr, x, out, accumulate)
    if rows == 0 or width == 0:
        return out
    _, indices, values = csr.arrays()
    kernel = SPMM((x.dtype, csr.values is not None))
    features = (*flat(x), *flat(out), width)
    passes = csr.passes(width * x.itemsize)
    for starts, stops in passes:
        arguments = (starts, stops, indices, values, *features)
        more = (accumulate, len(passes) == 1)

        def task(first: int, last: int, arguments: Any = arguments, more: Any = more) -> None:
            kernel(*arguments, first, last, *more)

        run_chunks(task, csr.chunks(width))
        accumulate = True
    return out


def _check(csr: CSR, x: Tensor, out: Tensor | None, accumulate: bool) -> None:
    if x.dim() != 2 or x.shape[0] != csr.num_cols or x.dtype not in FLOATS:
        raise ValueError(
            f"x is {x.dtype} {tuple(x.shape)}; float32 or float64 [{csr.num_cols}, F] is needed"
        )
    if csr.values is not None and csr.values.dtype != x.dtype:
        raise ValueError(f"values are {csr.values.dtype} and x is {x.dtype}; use csr.to(x.dtype)")
    if csr.device != x.device:
        raise ValueError(f"the matrix is on {csr.device} and x on {x.device}")
    if out is None:
        if accumulate:
            raise ValueError("accumulate needs out")
        return
    check_output(out, (csr.num_rows, x.shape[1]), x)


def spmm_torch(csr: CSR, x: Tensor, out: Tensor, accumulate: bool) -> Tensor:
    """As `spmm`, by torch.sparse, whose form of the matrix is made once and kept."""
    if csr.nnz == 0 or out.numel() == 0:
        return out if accumulate else out.zero_()
    key = ("torch", x.dtype)
    if key not in csr._cache:
        values = csr.values if csr.values is not None else x.new_ones(csr.nnz)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse")  # is in beta, is not checked
            csr._cache[key] = torch.sparse_csr_tensor(
                csr.indptr.to(csr.indices.dtype),
                csr.indices,
                values,
                (csr.num_rows, csr.num_cols),
                check_invariants=False,
            )
    product = csr._cache[key] @ x
    return out.add_(product) if accumulate else out.copy_(product)
