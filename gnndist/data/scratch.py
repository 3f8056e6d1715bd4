"""Arrays that may grow past memory: kept in a file without a name, gone with the process."""

import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gnndist.errors import DataError
from gnndist.graph import Array

IN_MEMORY = 1 << 28
"""bytes up to which a spool stays in memory"""


def scratch_file(folder: Path | None) -> BinaryIO:
    """A file without a name in `folder` (default: the system's): it leaves nothing behind."""
    try:
        return tempfile.TemporaryFile(dir=folder)
    except OSError as error:
        raise DataError(
            f"{folder or tempfile.gettempdir()}: cannot hold scratch files ({error.strerror}): "
            "name a folder that can"
        ) from error


def mapped(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """The array that fills `file`, mapped; the mapping outlives the file object."""
    file.flush()
    if 0 in shape:
        return np.zeros(shape, dtype)
    return np.memmap(file, mode="r+", dtype=dtype, shape=shape)


def append(file: BinaryIO, rows: Array) -> None:
    """Write `rows` at the end of `file`. DataError where the disk is full."""
    try:
        file.write(np.ascontiguousarray(rows).view(np.uint8).data if rows.size else b"")
    except OSError as error:
        raise DataError(f"scratch files: {error.strerror}: name a folder with more room") from error


class Spool:
    """Rows appended one block at a time; afterwards one array, mapped if it grew large."""

    def __init__(self, dtype: Any, folder: Path | None = None) -> None:
        self._dtype, self._folder = np.dtype(dtype), folder
        self._blocks: list[Array] = []
        self._file: BinaryIO | None = None
        self._rows = 0
        self._row_shape: tuple[int, ...] | None = None

    def append(self, block: Array) -> None:
        """Add `block` [rows, …]; every block has the same shape past the first axis."""
        if self._row_shape is None:
            self._row_shape = block.shape[1:]
        assert block.shape[1:] == self._row_shape
        self._rows += len(block)
        self._blocks.append(np.ascontiguousarray(block, self._dtype))
        if sum(b.nbytes for b in self._blocks) > IN_MEMORY:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = scratch_file(self._folder)
        for block in self._blocks:
            append(self._file, block)
        self._blocks.clear()

    def array(self) -> Array:
        """[rows, …] all that was appended; the spool is empty afterwards."""
        shape = (self._rows, *(self._row_shape or ()))
        if self._file is None:
            blocks, self._blocks = self._blocks, []
            return np.concatenate(blocks) if blocks else np.zeros(shape, self._dtype)
        self._spill()
        file, self._file = self._file, None
        with file:
            return mapped(file, self._dtype, shape)
