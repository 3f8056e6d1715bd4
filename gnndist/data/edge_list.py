"""Edge lists of text, as SNAP and everybody's spreadsheets have them: two ids a row."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gnndist.data.building import build
from gnndist.data.scratch import Spool
from gnndist.data.tables import Table, chunks, probe
from gnndist.data.vertex_ids import IdKind, IdSet, Places, as_ids, is_plain, kind_of
from gnndist.data.vertex_tables import VertexFiles, collect_ids, read_vertex_files
from gnndist.errors import DataError
from gnndist.graph import Array, Graph


def read_edge_list(
    path: Path,
    files: VertexFiles,
    *,
    symmetrize: bool,
    id_kind: IdKind | None = None,
    scratch: Path | None = None,
) -> Graph:
    """The graph of a table of edges: source, destination and perhaps weight.

    Lines at the top that begin with ``#`` or ``%`` are comments. Fields are cut at commas
    (``.csv``), tabs (``.tsv``) or what the first row has (``.txt``).

    Vertices are all ids that the edges, the features and the labels name, in ascending order;
    where those are not 0..N−1 they are kept in `Graph.vertex_names`. Where features or labels are
    a ``.npy``, whose rows are vertices 0..N−1, ids are taken as they are.

    Parameters
    ----------
    id_kind:
        None: integers where the first row's ids are integers, else strings.

    Raises
    ------
    DataError
        naming the file and the row: wrong number of fields, no id, an id that features say does
        not exist, a weight that is no finite number.
    """
    table = probe(path, files.header)
    if table.columns not in (2, 3):
        raise DataError(
            f"{path}: its first row has {table.columns} field(s): allowed are two ids, or two ids "
            "and a weight"
        )
    kind = kind_of(table, 2, id_kind)
    rows = files.by_row
    if rows is not None and kind == "string":
        raise DataError(
            f"{path}: ids are strings, but the rows of {files.features or files.labels} are "
            "vertices 0, 1, …: give features and labels as tables with ids"
        )
    names = np.arange(rows) if rows is not None else _all_names(table, files, kind)
    edges, weight = _edges(table, names, kind, scratch)
    return build(
        edges,
        path,
        num_vertices=len(names),
        edge_weight=weight,
        symmetrize=symmetrize,
        scratch=scratch,
        vertex_names=None if is_plain(names) else names,
        name=path.name.removesuffix(".gz").rpartition(".")[0],
        **read_vertex_files(files, names, kind),
    )


def _all_names(table: Table, files: VertexFiles, kind: IdKind) -> Array:
    found = IdSet()
    for source, destination, _, _ in _rows(table, kind):
        found.add(source)
        found.add(destination)
    collect_ids(files, kind, found)
    return found.names()


def _rows(table: Table, kind: IdKind) -> Iterator[tuple[Array, Array, Array | None, int]]:
    """Sources, destinations, weights and the number of rows before, a chunk at a time."""
    dtype = "int64" if kind == "integer" else "str"
    dtypes = {0: dtype, 1: dtype, 2: "float32"}
    for before, frame in chunks(table, {c: dtypes[c] for c in range(table.columns)}):
        source, destination = (as_ids(frame[c], kind, table, before) for c in (0, 1))
        weight = np.asarray(frame[2], np.float32) if table.columns == 3 else None
        if weight is not None and not np.isfinite(weight).all():
            row = int(np.argmin(np.isfinite(weight)))
            raise table.error(before + row + 1, f"the weight is {weight[row]}: allowed is finite")
        yield source, destination, weight, before


def _edges(
    table: Table, names: Array, kind: IdKind, scratch: Path | None
) -> tuple[Array, Array | None]:
    """[2, E] places in `names` and the weights; unweighted where all are 1."""
    pairs = Spool(np.int32 if len(names) < 2**31 else np.int64, scratch)
    weights = Spool(np.float32, scratch)
    places = Places(names)
    for source, destination, weight, before in _rows(table, kind):
        ends = np.stack([places(source), places(destination)], axis=1)
        missing = (ends < 0).any(axis=1)
        if missing.any():
            row = int(np.argmax(missing))
            raise table.error(
                before + row + 1,
                f"joins vertex {source[row]} to {destination[row]}: "
                f"allowed are ids 0 to {len(names) - 1}",
            )
        pairs.append(ends)
        if weight is not None:
            weights.append(weight)
    weight = weights.array() if table.columns == 3 else None
    return pairs.array().T, None if weight is None or bool((weight == 1).all()) else weight
