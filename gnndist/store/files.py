"""Files that are whole or not there: arrays in chunks, directories renamed when complete."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import xxhash
from numpy.lib import format as npy

from gnndist.errors import ConfigError, StoreError
from gnndist.graph import Array
from gnndist.store.manifest import FILE, FileEntry

READ_BYTES = 1 << 24


class ArrayWriter:
    """Writes one ``.npy`` file from consecutive chunks of its first axis, and its checksum."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.path = path
        self.dtype = dtype
        self.shape = shape
        self._rows = 0
        self._hash = xxhash.xxh3_128()
        self._file = path.open("wb")
        self._header()

    def _header(self) -> None:
        # numpy's own writer, through a hash on the way to the file.
        header = {
            "descr": npy.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": self.shape,
        }
        npy.write_array_header_1_0(self, header)

    def write(self, data: Any) -> None:
        """Append raw bytes."""
        self._hash.update(data)
        self._file.write(data)

    def append(self, chunk: Array) -> None:
        """Append rows; they are converted to the file's dtype."""
        chunk = np.ascontiguousarray(chunk, self.dtype)
        self._rows += len(chunk)
        if chunk.size:
            self.write(chunk.reshape(-1).view(np.uint8).data)

    def close(self) -> FileEntry:
        """Flush to the disk itself; the file's entry for the manifest."""
        assert self._rows == self.shape[0], (self.path, self._rows, self.shape)
        size = self._file.tell()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return FileEntry(size=size, xxh3_128=self._hash.hexdigest())

    def abandon(self) -> None:
        """Close without checks, on the way out of an error."""
        self._file.close()


def write_text(path: Path, text: str) -> None:
    """Write a small file, to the disk itself."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def checksum(path: Path) -> str:
    """xxh3_128 of a file's bytes, hexadecimal."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def check_output(path: Path, overwrite: bool) -> None:
    """Refuse an output directory that holds something.

    Raises
    ------
    ConfigError
        `path` is a file, or a directory that is not empty and not (with `overwrite`) a store.
    """
    if not path.exists():
        return
    if not path.is_dir():
        raise ConfigError(f"{path} is a file: a store is a directory")
    if not any(path.iterdir()):
        return
    if not (path / FILE).is_file():
        raise ConfigError(f"{path} is not empty and not a store: choose another directory")
    if not overwrite:
        raise ConfigError(f"{path} is not empty: choose another directory, or --overwrite")


@contextmanager
def new_directory(path: Path, overwrite: bool) -> Iterator[Path]:
    """A directory to fill, which becomes `path` when the block ends well, and else vanishes.

    It lies beside `path` until then. What a killed process left there is removed.
    """
    path = path.resolve()
    check_output(path, overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {path.parent}: {error.strerror}") from error
    prefix = f".{path.name}.partial-{socket.gethostname()}-"
    _remove_leftovers(path.parent, prefix)
    partial = path.parent / f"{prefix}{os.getpid()}"
    try:
        partial.mkdir()
    except OSError as error:
        raise StoreError(f"cannot write in {path.parent}: {error.strerror}") from error
    try:
        yield partial
        _sync(partial)
        _replace(partial, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _replace(partial: Path, path: Path) -> None:
    """Rename `partial` to `path`; an old store there is gone only when the new one is in place."""
    if not path.exists() or not any(path.iterdir()):
        partial.rename(path)
        return
    old = partial.with_name(f"{partial.name}-old")
    path.rename(old)
    try:
        partial.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old)


def _remove_leftovers(parent: Path, prefix: str) -> None:
    for leftover in parent.glob(f"{prefix}*"):
        pid = leftover.name.removeprefix(prefix)
        if not pid.isdigit() or int(pid) == os.getpid() or not psutil.pid_exists(int(pid)):
            shutil.rmtree(leftover, ignore_errors=True)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
