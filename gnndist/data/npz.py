"""A numpy archive read with care: no pickles, no shape larger than its bytes, mapped if it can be.

``np.load`` believes a header; this believes a header only where the archive's directory agrees
and the memory suffices. Members stored without compression are mapped instead of read.
"""

import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from gnndist.data.files import malformed, must_exist, must_fit
from gnndist.data.scratch import mapped, scratch_file
from gnndist.errors import DataError
from gnndist.graph import Array

MAP_FROM = 64 << 20
"""bytes from which an uncompressed member is mapped rather than read"""
SPILL_FROM = 1 << 30
"""bytes from which a compressed member is unpacked to a scratch file and mapped"""
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
    MemoryError,
    UnicodeError,
)


def _header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran's order, and dtype of the ``.npy`` that `stream` is at."""
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"npy version {version}: allowed are 1.0 and 2.0")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    try:
        return read(stream)
    # The header is a Python literal: damaged, it can fail in any way Python's parser can.
    except Exception as error:
        raise ValueError(f"its header cannot be read: {error}") from error


def _checked_size(shape: tuple[int, ...], dtype: np.dtype[Any], rest: int, what: str) -> int:
    """Bytes of an array, which must be just the `rest` of its file."""
    if dtype.hasobject or dtype.kind not in "biufSU":
        raise ValueError(f"{what} has dtype {dtype}: allowed are numbers, booleans and strings")
    if any(length < 0 for length in shape):
        raise ValueError(f"{what} has shape {shape}: allowed are lengths from 0")
    size = dtype.itemsize
    for length in shape:
        size *= length
    if size != rest:
        raise ValueError(f"{what} claims shape {shape} of {dtype}, {size} bytes, but holds {rest}")
    return size


class Archive:
    """The arrays of a ``.npz``, each read when asked for.

    Large ones are mapped, from the archive itself or, where they are compressed, from a scratch
    file in the folder `scratch` (default: the system's).

    Raises
    ------
    DataError
        from every method, naming the file and the array.
    """

    def __init__(self, path: Path, scratch: Path | None = None) -> None:
        self._scratch = scratch
        self.path = must_exist(path, "numpy archive")
        with malformed(path, "a numpy archive (.npz)", *_BROKEN):
            self._zip = zipfile.ZipFile(path)
        names = [n for n in self._zip.namelist() if n.endswith(".npy")]
        self.keys = frozenset(n.removesuffix(".npy") for n in names)

    def __enter__(self) -> "Archive":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._zip.close()

    def __contains__(self, key: str) -> bool:
        return key in self.keys

    def array(self, key: str) -> Array:
        """The array `key`, as stored; mapped where it is large."""
        if key not in self.keys:
            known = ", ".join(sorted(self.keys)) or "no array"
            raise DataError(f"{self.path}: holds no array {key!r}; it holds {known}")
        kind = f"a sound numpy archive: array {key!r}"
        with malformed(self.path, kind, *_BROKEN):
            info = self._zip.getinfo(f"{key}.npy")
            with self._zip.open(info) as stream:
                shape, fortran, dtype = _header(stream)
                start = stream.tell()
                size = _checked_size(shape, dtype, info.file_size - start, repr(key))
                if info.compress_type == zipfile.ZIP_STORED and size >= MAP_FROM:
                    order = "F" if fortran else "C"
                    return self._mapped(info, start, shape, dtype, order)
                if size >= SPILL_FROM and not fortran:
                    return self._unpacked(stream, size, shape, dtype)
                must_fit(size, self.path, f"array {key!r}")
                stream.seek(0)
                return np.asarray(npy.read_array(stream, allow_pickle=False))

    def _unpacked(
        self, stream: IO[bytes], size: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Array:
        free = shutil.disk_usage(self._scratch or tempfile.gettempdir()).free
        if size > free:
            raise DataError(
                f"{self.path}: an array of {size:,} bytes is unpacked to a scratch file, but its "
                f"disk has {free:,} bytes free: name a folder with more room"
            )
        with scratch_file(self._scratch) as file:
            shutil.copyfileobj(stream, file, 1 << 24)
            return mapped(file, dtype, shape)

    def _mapped(
        self, info: zipfile.ZipInfo, start: int, shape: tuple[int, ...], dtype: Any, order: Any
    ) -> Array:
        with self.path.open("rb") as raw:
            raw.seek(info.header_offset)
            local = raw.read(30)  # a member's own header: its name and extra field vary in length
        skip = 30 + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
        offset = info.header_offset + skip + start
        return np.memmap(self.path, mode="r", dtype=dtype, shape=shape, order=order, offset=offset)

    def integers(self, key: str, *, ndim: int = 1) -> Array:
        """`array(key)`, which must be whole numbers in `ndim` dimensions."""
        return whole(self.array(key), f"{self.path}: {key}", ndim=ndim)

    def numbers(self, key: str, *, ndim: int) -> Array:
        """`array(key)`, which must be numbers in `ndim` dimensions."""
        array = self.array(key)
        if array.dtype.kind not in "biuf" or array.ndim != ndim:
            raise DataError(
                f"{self.path}: {key} is {array.dtype} of shape {array.shape}: "
                f"allowed are numbers in {ndim} dimension(s)"
            )
        return array


def whole(array: Array, what: str, *, ndim: int) -> Array:
    """`array`, or a `DataError` where it is not integers in `ndim` dimensions."""
    if array.ndim != ndim or array.dtype.kind not in "iu":
        raise DataError(
            f"{what} is {array.dtype} of shape {array.shape}: "
            f"allowed are integers in {ndim} dimension(s)"
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        at = int(np.argmax(array))
        raise DataError(f"{what}: entry {at} is {array.flat[at]}: allowed is less than 2^63")
    return array


def load_npy(path: Path) -> Array:
    """One ``.npy`` file, mapped. `DataError` where it is not whole, or holds objects."""
    must_exist(path, "numpy array")
    with malformed(path, "a numpy array (.npy)", *_BROKEN):
        with path.open("rb") as stream:
            shape, fortran, dtype = _header(stream)
            start = stream.tell()
        _checked_size(shape, dtype, path.stat().st_size - start, "it")
        if 0 in shape:
            return np.zeros(shape, dtype)
        order: Any = "F" if fortran else "C"
        return np.memmap(path, mode="r", dtype=dtype, shape=shape, order=order, offset=start)
