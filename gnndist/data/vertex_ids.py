"""The user's own vertex ids, strings or sparse integers, and the places they map to."""

from typing import Literal

import numpy as np

from gnndist.data.tables import Table
from gnndist.errors import DataError
from gnndist.extras import need
from gnndist.graph import Array

IdKind = Literal["integer", "string"]
ID_KINDS = ("integer", "string")
LONGEST = 1000
"""characters of an id: all are kept in as many as the longest has"""


class IdSet:
    """Collects ids a block at a time; afterwards all of them, sorted, once each."""

    def __init__(self) -> None:
        self._unique = need("pandas", "csv", "reading tables of text").unique
        self._blocks: list[Array] = []
        self._pending = 0

    def add(self, block: Array) -> None:
        """Add ids: int64, or strings as Python objects."""
        self._blocks.append(self._unique(block))
        self._pending += len(self._blocks[-1])
        if self._pending > 2 * len(self._blocks[0]) + (1 << 20):
            self._merge()

    def _merge(self) -> None:
        self._blocks = [self._unique(np.concatenate(self._blocks))]
        self._pending = 0

    def names(self) -> Array:
        """[N] ascending: int64, or fixed-width strings."""
        if not self._blocks:
            return np.zeros(0, np.int64)
        self._merge()
        names = self._blocks[0]
        return np.sort(names if names.dtype.kind == "i" else names.astype(str))


def is_plain(names: Array) -> bool:
    """Whether `names` are just 0..N−1, so that no mapping is needed."""
    return bool(names.dtype.kind == "i") and np.array_equal(names, np.arange(len(names)))


class Places:
    """Where ids are in the sorted `names`: by a hash table, once built."""

    def __init__(self, names: Array) -> None:
        pandas = need("pandas", "csv", "reading tables of text")
        self._index = pandas.Index(names if names.dtype.kind == "i" else names.astype(object))

    def __call__(self, ids: Array) -> Array:
        """[n] int64, −1 for an id that is not there."""
        return np.asarray(self._index.get_indexer(ids), np.int64)


def as_ids(column: object, kind: IdKind, table: Table, before: int) -> Array:
    """A column of a data frame as ids. DataError where one is an empty string."""
    values = np.asarray(column)
    if kind == "integer":
        return values.astype(np.int64)
    texts = np.array([str(text).strip() for text in values], object)
    for row, text in enumerate(texts):
        if not text or len(text) > LONGEST or "\0" in text:
            what = repr(text[:40]) if text else "missing"
            raise table.error(
                before + row + 1,
                f"a vertex's id is {what}: allowed are 1 to {LONGEST} characters other than NUL",
            )
    return texts


def kind_of(table: Table, columns: int, wanted: IdKind | None) -> IdKind:
    """What the ids of a table are: as `wanted`, else by its first row's first `columns`."""
    if wanted is not None:
        if wanted not in ID_KINDS:
            raise DataError(f"kind of ids {wanted!r}: allowed are {', '.join(ID_KINDS)}")
        return wanted
    texts = table.first[:columns]
    return "integer" if all(t.lstrip("+-").isdecimal() for t in texts) else "string"
