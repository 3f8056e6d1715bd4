"""METIS's text format: a header ``n m [fmt [ncon]]``, then a line of neighbours a vertex.

Lines are read by the block: numbers by numpy, how many a line from where its newline is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from gnndist.data.building import build
from gnndist.data.files import must_fit, open_bytes
from gnndist.errors import DataError
from gnndist.graph import Array, Graph

BLOCK = 1 << 24
"""bytes parsed at a time"""
LONGEST_LINE = 1 << 28
"""bytes: some 30 million neighbours"""
_SPACE = np.zeros(256, bool)
_SPACE[list(b" \t\r\n\v\f")] = True
_DIGIT = np.zeros(256, bool)
_DIGIT[list(b"0123456789")] = True


@dataclass(frozen=True, kw_only=True)
class _Header:
    vertices: int
    edges: int
    """undirected: each is listed at both ends"""
    skipped: int
    """numbers before a line's neighbours: the vertex's size and weights"""
    weighted: bool
    """each neighbour is followed by the weight of the edge"""


def read_metis(path: Path) -> Graph:
    """The graph of a METIS file (``.graph``, ``.graph.gz``).

    Vertices are numbered from 1 there and from 0 here. Vertex sizes and weights are read over:
    partitioning weighs vertices by the work of training.

    Raises
    ------
    DataError
        naming the file and the vertex's row: no number, an id outside 1..n, another number of
        rows or edges than the header says, an edge listed at one end only.
    """
    with open_bytes(path) as stream:
        header = _read_header(stream, path)
        degree, neighbours, weight = _read_rows(stream, header, path)
    if len(neighbours) != 2 * header.edges:
        raise DataError(
            f"{path}: the header says {header.edges} edges, so {2 * header.edges} entries: "
            f"there are {len(neighbours)}"
        )
    vertex = np.repeat(np.arange(header.vertices, dtype=neighbours.dtype), degree)
    graph = build(
        np.stack([neighbours, vertex]),
        path,
        symmetrize=False,
        num_vertices=header.vertices,
        edge_weight=weight,
        name=path.name.removesuffix(".gz").removesuffix(".graph"),
    )
    if not graph.symmetric:
        raise DataError(
            f"{path}: an edge is listed at one of its ends only, or with two weights: "
            "METIS's format lists each edge at both"
        )
    return graph


def _read_header(stream: BinaryIO, path: Path) -> _Header:
    line = b"%"
    number = 0
    while line.startswith(b"%"):
        line = stream.readline(1 << 16)
        number += 1
    words = line.split()
    if not (2 <= len(words) <= 4 and all(w.isdigit() and len(w) < 19 for w in words)):
        text = line[:80].decode("ascii", "replace").strip()
        raise DataError(
            f"{path}: line {number}: the header is {text!r}: allowed is 'n m [fmt [ncon]]'"
        )
    n, m = int(words[0]), int(words[1])
    fmt = words[2].decode() if len(words) > 2 else "0"
    if len(fmt) > 3 or set(fmt) - set("01"):
        raise DataError(f"{path}: line {number}: fmt is {fmt!r}: allowed are 0, 1, 10, … 111")
    sizes, weights, edge_weights = (digit == "1" for digit in fmt.zfill(3))
    ncon = int(words[3]) if len(words) > 3 else 1
    # 16 bytes a vertex and 8 an entry is the least that comes of them.
    must_fit(16 * n + 16 * m, path, f"the graph its header claims ({n} vertices, {m} edges)")
    return _Header(
        vertices=n,
        edges=m,
        skipped=int(sizes) + (ncon if weights else 0),
        weighted=edge_weights,
    )


def _blocks(stream: BinaryIO, path: Path) -> Iterator[bytes]:
    """Whole lines, about `BLOCK` bytes at a time, without comments."""
    rest = b""
    while chunk := stream.read(BLOCK):
        rest += chunk
        cut = rest.rfind(b"\n") + 1
        if cut == 0 and len(rest) > LONGEST_LINE:
            raise DataError(f"{path}: a line is longer than {LONGEST_LINE:,} bytes")
        if cut:
            yield _without_comments(rest[:cut])
            rest = rest[cut:]
    if rest:
        yield _without_comments(rest + b"\n")


def _without_comments(block: bytes) -> bytes:
    if b"%" not in block:
        return block
    return b"".join(x for x in block.splitlines(keepends=True) if not x.startswith(b"%"))


def _read_rows(stream: BinaryIO, header: _Header, path: Path) -> tuple[Array, Array, Array | None]:
    """Neighbours a vertex, all neighbours (from 0), all weights."""
    degrees: list[Array] = []
    neighbours: list[Array] = []
    weights: list[Array] = []
    rows = 0
    for block in _blocks(stream, path):
        numbers, counts = _parsed(block, rows, path)
        if rows + len(counts) > header.vertices:
            # Blank lines may follow the last vertex, which would be isolated ones before it.
            counts, extra = np.split(counts, [header.vertices - rows])
            if extra.any():
                raise DataError(f"{path}: more than the {header.vertices} rows its header says")
        degree, ids, weight = _columns(numbers, counts, header, rows, path)
        degrees.append(degree)
        neighbours.append(ids)
        weights.append(weight)
        rows += len(counts)
    if rows != header.vertices:
        raise DataError(f"{path}: {rows} rows, but its header says {header.vertices} vertices")
    empty = np.zeros(0, np.int64)
    return (
        np.concatenate([empty, *degrees]),
        np.concatenate(neighbours or [empty]),
        np.concatenate(weights or [empty]) if header.weighted else None,
    )


def _parsed(block: bytes, row: int, path: Path) -> tuple[Array, Array]:
    """All numbers of `block` and how many there are on each of its lines."""
    text = np.frombuffer(block, np.uint8)
    space = _SPACE[text]
    wrong = ~(space | _DIGIT[text])
    if wrong.any():
        at = int(np.argmax(wrong))
        row += block.count(b"\n", 0, at)
        raise DataError(
            f"{path}: vertex {row + 1}'s row holds {chr(text[at])!r}: allowed are whole numbers"
        )
    starts = np.flatnonzero(~space & np.concatenate([[True], space[:-1]]))
    ends = np.flatnonzero(text == ord("\n"))
    counts = np.diff(np.searchsorted(starts, ends), prepend=0)
    # Numbers too long for 64 bits come out as the largest there is, which no check lets pass.
    numbers = np.fromstring(block, np.int64, sep=" ") if len(starts) else np.zeros(0, np.int64)
    return numbers, counts


def _columns(
    numbers: Array, counts: Array, header: _Header, first: int, path: Path
) -> tuple[Array, Array, Array]:
    """Degrees, neighbour ids from 0 and edge weights of the rows from `first` on."""
    step = 2 if header.weighted else 1
    entries = counts - header.skipped
    wrong = (entries < 0) | (entries % step != 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"{path}: vertex {first + row + 1}'s row has {counts[row]} numbers: allowed are "
            f"{header.skipped}{' plus pairs of neighbour and weight' if step == 2 else ' or more'}"
        )
    offset = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    offset -= header.skipped
    ids = numbers[(offset >= 0) & (offset % step == 0)]
    weight = numbers[(offset >= 0) & (offset % step == 1)] if header.weighted else numbers[:0]
    outside = (ids < 1) | (ids > header.vertices)
    if outside.any():
        at = int(np.argmax(outside))
        row = int(np.searchsorted(np.cumsum(entries // step), at, side="right"))
        raise DataError(
            f"{path}: vertex {first + row + 1}'s row names vertex {ids[at]}: "
            f"allowed are 1 to {header.vertices}"
        )
    small = np.int32 if header.vertices < 2**31 else np.int64
    return entries // step, (ids - 1).astype(small), weight.astype(np.float32)
