"""Tables of text, read by pandas in chunks, with errors that name the file and the row.

Rows are counted from 1, without comments at the top, a header and blank lines.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from gnndist.data.files import malformed, open_bytes, suffixes
from gnndist.errors import DataError
from gnndist.extras import need
from gnndist.graph import Array

ROWS = 1 << 20
"""rows read at a time"""
LONGEST_LINE = 1 << 24
_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")
_ID_NAMES = frozenset({"id", "vertex", "node", "name", "source", "src", "from"})
_MISSING = ["", "nan", "NaN", "NA"]


def _pandas() -> Any:
    return need("pandas", "csv", "reading tables of text")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Where a table's rows begin and how they are cut into fields."""

    path: Path
    separator: str
    skipped: int
    """lines before the first row: comments and a header"""
    first: tuple[str, ...]
    """the fields of the first row"""

    @property
    def columns(self) -> int:
        return len(self.first)

    def error(self, row: int, text: str) -> DataError:
        return DataError(f"{self.path}: row {row}: {text}")


def probe(path: Path, header: bool | None, *, separator: str | None = None) -> Table:
    """Look at the first lines of `path`.

    Parameters
    ----------
    header:
        whether the first line names the columns; None: where its first field is no number and
        the next line's is, or where it is called like one ("id", "source", …).
    separator:
        None: by suffix (``.csv`` a comma, ``.tsv`` a tab), else a comma, tab or semicolon where
        the first row has one, else white space.

    Raises
    ------
    DataError
        missing, empty or not text.
    """
    with open_bytes(path) as stream:
        comments = 0
        line = _line(stream, path)
        while line.startswith(("#", "%")):
            comments += 1
            line = _line(stream, path)
        following = _line(stream, path)
    if not line.strip():
        raise DataError(f"{path}: empty: it has no row" + (" but comments" if comments else ""))
    cut = separator or _separator(path, line)
    with malformed(path, "a sound table", csv.Error):
        first, second = _fields(line, cut), _fields(following, cut)
    if header is None:
        header = _is_header(first, second)
    if header and not second:
        raise DataError(f"{path}: empty: it has no row but a header")
    return Table(
        path=path,
        separator=cut,
        skipped=comments + int(header),
        first=second if header else first,
    )


def _line(stream: BufferedReader, path: Path) -> str:
    raw = stream.readline(LONGEST_LINE)
    if len(raw) == LONGEST_LINE:
        raise DataError(f"{path}: a line is longer than {LONGEST_LINE:,} bytes")
    with malformed(path, "text in UTF-8", UnicodeDecodeError):
        return raw.decode("utf-8-sig")


def _separator(path: Path, line: str) -> str:
    by_name = {".csv": ",", ".tsv": "\t"}.get(suffixes(path))
    return by_name or next((c for c in ",\t;" if c in line), r"\s+")


def _fields(line: str, separator: str) -> tuple[str, ...]:
    if not line.strip():
        return ()
    if separator == r"\s+":
        return tuple(line.split())
    return tuple(f.strip() for f in next(csv.reader([line.strip("\r\n")], delimiter=separator)))


def _is_header(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    if first[0].lower().replace("_id", "").lstrip("# ") in _ID_NAMES:
        return True
    return bool(second) and not _is_number(first[0]) and _is_number(second[0])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def chunks(table: Table, dtypes: Mapping[int, str]) -> Iterator[tuple[int, Any]]:
    """Data frames of up to `ROWS` rows, each with the number of rows before it.

    Parameters
    ----------
    dtypes:
        ``int64``, ``float32``, ``float64`` or ``str`` for each column, by its number.

    Raises
    ------
    DataError
        a row with another number of fields, a field that is not of its column's kind.
    """
    pandas = _pandas()
    read = 0
    broken = (pandas.errors.ParserError, pandas.errors.EmptyDataError, UnicodeError, MemoryError)
    with open_bytes(table.path) as stream:
        for _ in range(table.skipped):
            stream.readline()
        try:
            with malformed(table.path, "a sound table", *broken):
                reader = pandas.read_csv(
                    stream,
                    sep=table.separator,
                    header=None,
                    dtype=dict(dtypes),
                    chunksize=ROWS,
                    keep_default_na=False,
                    na_values={c: _MISSING for c, kind in dtypes.items() if kind != "str"},
                    encoding="utf-8-sig",
                    index_col=False if table.columns > 1 else None,
                )
                while (frame := _next(reader)) is not None:
                    if frame.shape[1] != len(dtypes):
                        raise table.error(
                            read + 1, f"{frame.shape[1]} fields: allowed are {len(dtypes)}"
                        )
                    yield read, frame
                    read += len(frame)
        except DataError:
            raise
        except (ValueError, OverflowError, TypeError) as error:
            raise _culprit(table, dtypes, str(error)) from error


def _next(reader: Any) -> Any:
    """The next data frame, or None; pandas warns of the casts that it then reports."""
    with np.errstate(invalid="ignore"):
        return next(reader, None)


def _culprit(table: Table, dtypes: Mapping[int, str], said: str) -> DataError:
    """Name the first field that is not of its column's kind: pandas says only that one is not."""
    everything = dict.fromkeys(dtypes, "str")
    for before, frame in chunks(table, everything):
        first: tuple[int, int] | None = None
        for column, kind in dtypes.items():
            wrong = ~_parses(frame[column], kind)
            if wrong.any():
                row = int(np.argmax(wrong))
                first = min(first or (row, column), (row, column))
        if first is not None:
            row, column = first
            allowed = "a whole number below 10^18" if dtypes[column] == "int64" else "a number"
            value = str(frame[column].iloc[row])[:40]
            return table.error(
                before + row + 1, f"field {column + 1} is {value!r}: allowed is {allowed}"
            )
    return DataError(f"{table.path}: not a sound table: {said}")


def _parses(texts: Any, kind: str) -> Array:
    if kind == "str":
        return np.ones(len(texts), bool)
    check = _INTEGER.fullmatch if kind == "int64" else _is_number
    return np.fromiter((bool(check(str(t))) for t in texts), bool, len(texts))


def read_numbers(table: Table, dtype: str) -> Iterator[tuple[int, Array]]:
    """Chunks of a table whose columns are all of one kind, each with the number of rows before."""
    for before, frame in chunks(table, dict.fromkeys(range(table.columns), dtype)):
        yield before, frame.to_numpy(dtype)
