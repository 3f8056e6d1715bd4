"""The user's own vertex ids, strings or sparse integers, and the places they map to."""

from typing import Literal

import numpy as np

from gnndist.data.tables import Table
from gnndist.errors import DataError
from gnndist.graph import Array

IdKind = Literal["integer", "string"]
ID_KINDS = ("integer", "string")


class IdSet:
    """Collects ids a block at a time; afterwards all of them, sorted, once each."""

    def __init__(self) -> None:
        self._found: Array | None = None

    def add(self, block: Array) -> None:
        """Add ids: int64, or strings (fixed-width unicode)."""
        new = np.unique(block)
        self._found = new if self._found is None else np.union1d(self._found, new)

    def names(self) -> Array:
        """[N] ascending."""
        return np.zeros(0, np.int64) if self._found is None else self._found


def is_plain(names: Array) -> bool:
    """Whether `names` are just 0..N−1, so that no mapping is needed."""
    return bool(names.dtype.kind == "i") and np.array_equal(names, np.arange(len(names)))


def places(ids: Array, names: Array) -> Array:
    """Where each of `ids` is in the sorted `names`; −1 where it is not."""
    if len(names) == 0:
        return np.full(len(ids), -1, np.int64)
    at = np.minimum(np.searchsorted(names, ids), len(names) - 1)
    return np.where(names[at] == ids, at, -1).astype(np.int64)


def as_ids(column: object, kind: IdKind, table: Table, before: int) -> Array:
    """A column of a data frame as ids. DataError where one is an empty string."""
    values = np.asarray(column)
    if kind == "integer":
        return values.astype(np.int64)
    texts = np.char.strip(values.astype(str))
    empty = texts == ""
    if empty.any():
        raise table.error(
            before + int(np.argmax(empty)) + 1, "a vertex has no id: the field is empty"
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
