"""CSR from more edges than fit in memory: dealt into buckets of rows, each sorted on its own.

Memory: 17 bytes a vertex and one bucket, whatever the number of edges. Disk: 8 bytes an edge
for the buckets, 4 for the result, all of it read and written in order.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from gnndist.data.scratch import append, mapped, scratch_file
from gnndist.errors import DataError
from gnndist.graph import Array, EdgeCounts

CHUNK = 1 << 22
"""edges looked at a time"""
BUCKET = 1 << 24
"""edges sorted at a time, unless a single vertex has more"""
MOST_BUCKETS = 256
"""files open at a time (their numbers fit 8 bits)"""
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, kw_only=True)
class DiskCSR:
    """A sorted CSR matrix whose column ids are mapped from an unnamed file."""

    indptr: NDArray[np.int64]
    indices: Array
    symmetric: bool
    counts: EdgeCounts


def disk_csr(
    edges: Array, num_vertices: int, *, symmetrize: bool, folder: Path | None = None
) -> DiskCSR:
    """The adjacency of `edges` by destination: in-neighbours ascending, equal edges merged.

    The same as `Graph.from_edge_index` makes of unweighted edges, array for array.

    Parameters
    ----------
    edges:
        [2, E] integers, sources and destinations; may be mapped.
    num_vertices:
        N < 2^31.
    symmetrize:
        add the reverse of every edge.
    folder:
        where scratch files go.

    Raises
    ------
    DataError
        an id outside 0..N−1; N too large; a full disk.
    """
    if num_vertices >= 2**31:
        raise DataError(f"{num_vertices} vertices: allowed are fewer than 2^31")
    with ExitStack() as stack:
        bounds = _bucket_bounds(_degrees(edges, num_vertices, symmetrize))
        buckets = [stack.enter_context(scratch_file(folder)) for _ in bounds[1:]]
        _deal(edges, bounds, buckets, symmetrize)
        return _merge(bounds, buckets, edges.shape[1], symmetrize, folder)


def _chunks(edges: Array) -> Iterator[tuple[Array, Array, int]]:
    for start in range(0, edges.shape[1], CHUNK):
        source, destination = np.asarray(edges[:, start : start + CHUNK])
        yield source, destination, start


def _degrees(edges: Array, num_vertices: int, symmetrize: bool) -> NDArray[np.int64]:
    """[N] entries a row, before equal ones are merged."""
    degree = np.zeros(num_vertices, np.int64)
    for source, destination, start in _chunks(edges):
        wrong = (source < 0) | (source >= num_vertices)
        wrong |= (destination < 0) | (destination >= num_vertices)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise DataError(
                f"edge {start + at} joins vertex {int(source[at])} to {int(destination[at])}: "
                f"allowed are ids 0 to {num_vertices - 1}"
            )
        np.add.at(degree, destination.astype(np.int64), 1)
        if symmetrize:
            np.add.at(degree, source.astype(np.int64), 1)
    return degree


def _bucket_bounds(degree: NDArray[np.int64]) -> NDArray[np.int64]:
    """[buckets + 1] rows at which buckets of about `BUCKET` entries begin."""
    total = np.cumsum(degree)
    entries = int(total[-1]) if len(total) else 0
    count = min(MOST_BUCKETS, 1 + entries // BUCKET)
    cuts = np.searchsorted(total, np.arange(1, count) * (entries / count))
    return np.concatenate([[0], cuts, [len(degree)]]).astype(np.int64)


def _deal(
    edges: Array, bounds: NDArray[np.int64], buckets: list[BinaryIO], symmetrize: bool
) -> None:
    """Append every edge to the file of its row's bucket.

    An entry is one number: row from bit 32 up, column from bit 1 up, and whether it is a reverse
    in bit 0. So sorting puts an edge before its equals that symmetrising added.
    """
    bucket_of = np.repeat(np.arange(len(buckets), dtype=np.uint8), np.diff(bounds))
    for source, destination, _ in _chunks(edges):
        row, column = destination.astype(np.uint64), source.astype(np.uint64)
        keys = row << np.uint64(32) | column << np.uint64(1)
        if symmetrize:
            off = row != column
            reverse = column[off] << np.uint64(32) | row[off] << np.uint64(1) | np.uint64(1)
            keys = np.concatenate([keys, reverse])
        bucket = bucket_of[keys >> np.uint64(32)]
        order = np.argsort(bucket, kind="stable")  # of 8-bit numbers: a radix sort
        keys, ends = keys[order], np.cumsum(np.bincount(bucket, minlength=len(buckets)))
        for file, part in zip(buckets, np.split(keys, ends[:-1]), strict=True):
            append(file, part)


def _merge(
    bounds: NDArray[np.int64],
    buckets: list[BinaryIO],
    read: int,
    symmetrize: bool,
    folder: Path | None,
) -> DiskCSR:
    indptr = np.zeros(int(bounds[-1]) + 1, np.int64)
    originals = loops = 0
    balance = 0
    with scratch_file(folder) as result:
        for first, last, file in zip(bounds[:-1], bounds[1:], buckets, strict=True):
            file.seek(0)
            keys = np.fromfile(file, np.uint64)
            file.truncate(0)
            keys.sort()
            edge = keys >> np.uint64(1)
            new = np.ones(len(edge), bool)
            np.not_equal(edge[1:], edge[:-1], out=new[1:])
            originals += int((keys[new] & np.uint64(1) == 0).sum())
            edge = edge[new]
            row, column = edge >> np.uint64(31), edge & np.uint64(2**31 - 1)
            append(result, column.astype(np.int32))
            counts = np.bincount((row - np.uint64(first)).astype(np.int64), minlength=last - first)
            indptr[first + 1 : last + 1] = counts
            loops += int((row == column).sum())
            if not symmetrize:
                balance += _mixed(row, column) - _mixed(column, row)
        np.cumsum(indptr, out=indptr)
        indices = mapped(result, np.dtype(np.int32), (int(indptr[-1]),))
    return DiskCSR(
        indptr=indptr,
        indices=indices,
        # Edges and their reverses are the same set, but for a chance of 2^-64.
        symmetric=symmetrize or balance % 2**64 == 0,
        counts=EdgeCounts(
            read=read,
            duplicates=read - originals,
            self_loops=loops,
            reversed=int(indptr[-1]) - originals,
        ),
    )


def _mixed(row: Array, column: Array) -> int:
    """The sum of a 64-bit hash of each edge (splitmix's finaliser)."""
    key = row << np.uint64(32) | column
    for shift, factor in zip((30, 27), _MIX, strict=True):
        key = (key ^ key >> np.uint64(shift)) * factor
    return int((key ^ key >> np.uint64(31)).sum(dtype=np.uint64))
