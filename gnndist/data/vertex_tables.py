"""Features, labels and splits that lie in files of their own beside the edges."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnndist.data.features import as_features
from gnndist.data.files import must_fit, suffixes
from gnndist.data.labels import as_labels
from gnndist.data.npz import load_npy
from gnndist.data.tables import Table, chunks, probe
from gnndist.data.vertex_ids import IdKind, IdSet, Places, as_ids
from gnndist.errors import DataError
from gnndist.graph import SPLITS, Array

_SPLIT_WORDS = {"train": 0, "valid": 1, "val": 1, "validation": 1, "test": 2, "": -1}


@dataclass(frozen=True, kw_only=True)
class VertexFiles:
    """Where features and labels lie, and how their rows are to be read.

    A ``.npy`` has a row a vertex, in order. A table (``.csv``, ``.tsv``, ``.txt``, each also
    ``.gz``) has the vertex's id first in each row, then numbers (features) or a label and, if it
    likes, ``train``, ``valid`` or ``test`` (labels); a table of labels of one column is in order.
    """

    features: Path | None = None
    labels: Path | None = None
    header: bool | None = None
    """whether tables begin with a line of names; None: look"""

    @property
    def by_row(self) -> int | None:
        """N where a ``.npy`` says it, else None: then ids may be mapped."""
        for path in (self.features, self.labels):
            if path is not None and suffixes(path) == ".npy":
                return len(_npy(path))
        return None


def _npy(path: Path) -> Array:
    array = load_npy(path)
    if array.ndim == 0:
        raise DataError(f"{path}: a single number: allowed is a row a vertex")
    return array


def collect_ids(files: VertexFiles, kind: IdKind, ids: IdSet) -> None:
    """Add the ids that tables of features and labels name to `ids`."""
    for path in (files.features, files.labels):
        if path is None or suffixes(path) == ".npy":
            continue
        table = probe(path, files.header)
        if table.columns == 1:
            continue
        for before, frame in chunks(table, {0: _dtype(kind), **_rest(table, "str")}):
            ids.add(as_ids(frame[0], kind, table, before))


def _dtype(kind: IdKind) -> str:
    return "int64" if kind == "integer" else "str"


def _rest(table: Table, dtype: str) -> dict[int, str]:
    return dict.fromkeys(range(1, table.columns), dtype)


def read_vertex_files(files: VertexFiles, names: Array, kind: IdKind) -> dict[str, Any]:
    """The fields of a `Graph` with vertices `names` (sorted) that come of `files`."""
    fields: dict[str, Any] = {}
    if files.features is not None:
        fields["features"] = _features(files.features, files.header, names, kind)
    if files.labels is not None:
        fields.update(_labels(files.labels, files.header, names, kind))
    return fields


def _features(path: Path, header: bool | None, names: Array, kind: IdKind) -> Array:
    if suffixes(path) == ".npy":
        return as_features(_sized(_npy(path), names, path), str(path))
    table = probe(path, header)
    if table.columns < 2:
        raise DataError(f"{path}: one column: allowed are a vertex's id and its features")
    shape = (len(names), table.columns - 1)
    must_fit(4 * shape[0] * shape[1], path, "its features")
    features = np.zeros(shape, np.float32)
    seen, places = np.zeros(len(names), bool), Places(names)
    for before, frame in chunks(table, {0: _dtype(kind), **_rest(table, "float32")}):
        at = _rows(as_ids(frame[0], kind, table, before), places, seen, table, before)
        features[at] = frame.iloc[:, 1:].to_numpy(np.float32)
    if not seen.all():
        missing = names[int(np.argmin(seen))]
        raise DataError(f"{path}: vertex {str(missing)!r} has no row of features")
    return features


def _rows(ids: Array, places: Places, seen: Array, table: Table, before: int) -> Array:
    """Where `ids` are, none of which may be unknown or have come before; marks them as seen."""
    at = places(ids)
    if (at < 0).any():
        row = int(np.argmax(at < 0))
        raise table.error(before + row + 1, f"vertex {str(ids[row])!r} does not exist")
    order = np.argsort(at, kind="stable")
    again = seen[at]
    again[order[1:]] |= np.diff(at[order]) == 0
    if again.any():
        row = int(np.argmax(again))
        raise table.error(before + row + 1, f"vertex {str(ids[row])!r} has a row already")
    seen[at] = True
    return at


def _sized(array: Array, names: Array, path: Path) -> Array:
    if len(array) != len(names):
        raise DataError(f"{path}: {len(array)} rows, but there are {len(names)} vertices")
    return array


def _labels(path: Path, header: bool | None, names: Array, kind: IdKind) -> dict[str, Any]:
    splits: dict[str, Array] = {}
    if suffixes(path) == ".npy":
        values = _sized(_npy(path), names, path)
    else:
        table = probe(path, header)
        columns = _label_columns(table, names, kind)
        if table.columns == 3 and _all_words(columns[1]):
            splits = _splits(columns[1])
            columns = columns[:1]
        values = np.stack([_numbers(c, table) for c in columns], axis=1)
    labels, task, classes = as_labels(values, str(path))
    return {"labels": labels, "task": task, "num_classes": classes, "splits": splits}


def _label_columns(table: Table, names: Array, kind: IdKind) -> list[Array]:
    """The columns after the id as text, a row a vertex, "" for a vertex without a row."""
    by_order = table.columns == 1
    first = 0 if by_order else 1
    found = [np.full(len(names), "", object) for _ in range(table.columns - first)]
    seen, places = np.zeros(len(names), bool), Places(names)
    for before, frame in _label_chunks(table, kind, by_order):
        if by_order:
            at = np.arange(before, before + len(frame))
            if at[-1] >= len(names):
                raise table.error(len(names) + 1, f"more rows than the {len(names)} vertices")
        else:
            at = _rows(as_ids(frame[0], kind, table, before), places, seen, table, before)
        for number, column in enumerate(found):
            column[at] = np.char.strip(np.asarray(frame[first + number]).astype(str))
        last = before + len(frame)
    if by_order and last != len(names):
        raise DataError(f"{table.path}: {last} rows, but there are {len(names)} vertices")
    return found


def _label_chunks(table: Table, kind: IdKind, by_order: bool) -> Iterator[tuple[int, Any]]:
    if by_order:
        return chunks(table, {0: "str"})
    return chunks(table, {0: _dtype(kind), **_rest(table, "str")})


def _all_words(column: Array) -> bool:
    return set(np.unique(column.astype(str))) <= set(_SPLIT_WORDS)


def _splits(column: Array) -> dict[str, Array]:
    part = np.array([_SPLIT_WORDS[word] for word in column], np.int8)
    return {name: np.flatnonzero(part == number) for number, name in enumerate(SPLITS)}


def _numbers(column: Array, table: Table) -> Array:
    """Labels as numbers, NaN where empty; words become classes in alphabetical order."""
    given = column != ""
    try:
        values = np.full(len(column), np.nan)
        values[given] = column[given].astype(np.float64)
    except ValueError as error:
        if table.columns > 3:
            raise DataError(f"{table.path}: several columns of labels must be numbers") from error
        _, classes = np.unique(column[given].astype(str), return_inverse=True)
        values[given] = classes
    return values
