"""Opening what others wrote: gzip, wrong contents and sizes that only a header claims."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import psutil

from gnndist.errors import DataError

EXPANSION = 200
"""how many times its size a gzip file of text may grow: real ones grow 3 to 20 times"""
ALLOWANCE = 64 << 20
"""bytes any gzip file may grow to, whatever its size"""


@contextmanager
def malformed(path: Path, kind: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn a library's `errors` into a `DataError` naming `path` and what it should have been.

    Wrap the library's call alone, so that a bug of ours is not taken for the user's.
    """
    try:
        yield
    except DataError:
        raise
    except errors as error:
        text = str(error).strip().splitlines()
        what = text[0] if text else type(error).__name__
        raise DataError(f"{path}: not {kind}: {what}") from error


def must_exist(path: Path, what: str) -> Path:
    """`path`, or a `DataError` where it is no readable file."""
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise DataError(f"{path}: no {what} here ({error.strerror or error})") from error
    return path


def must_fit(size: int, path: Path, what: str) -> None:
    """Refuse an array larger than the machine's memory before anything is allocated.

    A header can claim any shape: without this, ten bytes of one would end the process.
    """
    memory = psutil.virtual_memory().total
    if size > memory:
        raise DataError(
            f"{path}: {what} would take {size:,} bytes: this machine has {memory:,} bytes of memory"
        )


class _Bounded(io.RawIOBase):
    """A stream that refuses to grow past a limit, and names its file when it is broken."""

    def __init__(self, stream: BinaryIO, path: Path, limit: int) -> None:
        self._stream, self._path, self._left = stream, path, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        with malformed(self._path, "a whole gzip file", EOFError, zlib.error, gzip.BadGzipFile):
            chunk = self._stream.read(len(view))
        self._left -= len(chunk)
        if self._left < 0:
            raise DataError(
                f"{self._path}: grows to more than {EXPANSION} times its size when unpacked: "
                "no graph does"
            )
        view[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_bytes(path: Path) -> io.BufferedReader:
    """`path` for reading, unpacked where its name ends in ``.gz``.

    Raises
    ------
    DataError
        missing file; on reading: gzip cut short or damaged, or a file made to fill the memory.
    """
    must_exist(path, "file")
    if path.suffix != ".gz":
        return path.open("rb")
    limit = ALLOWANCE + EXPANSION * path.stat().st_size
    stream = cast(BinaryIO, gzip.GzipFile(path, "rb"))
    return io.BufferedReader(_Bounded(stream, path, limit), buffer_size=1 << 20)


def suffixes(path: Path) -> str:
    """The kind of a file by its name, lower case, without ``.gz``: ``.csv`` for ``A.csv.gz``."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix
