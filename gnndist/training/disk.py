"""Files that are whole or not there, and plain words when a disk lets us down."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gnndist.errors import RunError

_WORDS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "no permission to write there",
    errno.EPERM: "no permission to write there",
    errno.ENOENT: "the directory has vanished",
    errno.ENOTDIR: "the directory has vanished",
    errno.ESTALE: "the network file system has dropped it",
    errno.EIO: "the disk reports an input/output error",
}


def write_file(path: Path, content: bytes) -> None:
    """Replace the file: whole and on the disk itself, or as it was."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def plain(error: OSError) -> str:
    """What an operating system error means."""
    return _WORDS.get(error.errno or 0, error.strerror or str(error))


@contextmanager
def writing(what: str, where: Path) -> Iterator[None]:
    """Turn a failure to write into one plain line.

    Raises
    ------
    RunError
        saying what could not be written where, and why.
    """
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot write {what} to {where}: {plain(error)}") from error
