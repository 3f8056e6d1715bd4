"""Old data sets lie in pickles. This reads the arrays out of one without running anything in it.

A pickle is a program that may call any function it can name. Here each name it may use (numpy's
and scipy's array types, a few containers) is a class made for this one file that only records
what it was called with; any other name is refused. The arrays are then built from the records
by code that checks sizes. Nothing of numpy or scipy sees unchecked state.
"""

import pickle
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from gnndist.data.features import checked_csr
from gnndist.data.files import must_exist
from gnndist.data.npz import whole
from gnndist.errors import DataError
from gnndist.graph import Array

_ARRAY = {
    f"{module}.{name}"
    for module in ("numpy.core.multiarray", "numpy._core.multiarray")
    for name in ("_reconstruct", "scalar")
}
_SPARSE = {"scipy.sparse.csr.csr_matrix", "scipy.sparse._csr.csr_matrix"}
_DICTS = {"collections.defaultdict", "collections.OrderedDict"}
_OTHER = {
    "numpy.ndarray",
    "numpy.dtype",
    "_codecs.encode",
    "copy_reg._reconstructor",
    "copyreg._reconstructor",
    "__builtin__.list",
    "builtins.list",
    "__builtin__.bytes",
    "builtins.bytes",
    "__builtin__.object",
    "builtins.object",
}
_DTYPES = {f"{kind}{size}" for kind in "fiu" for size in (1, 2, 4, 8)} - {"f1"} | {"b1"}


class _Record:
    """What a pickle said about one object."""

    path: str
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> "_Record":
        made = object.__new__(cls)
        made.args, made.state = args, None
        return made

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Dict(dict[Any, Any]):
    """Stands for defaultdict and OrderedDict, whose arguments may be a factory or pairs."""

    def __init__(self, *args: Any) -> None:
        pairs = args[0] if args and isinstance(args[0], list) else ()
        super().__init__(pairs)


class _Unpickler(pickle._Unpickler):
    """Python's own unpickler, not C's: its memo is a dict.

    The C one's is a table as long as the largest number in it, and ten bytes of a file can ask
    for 64 GB.
    """

    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="latin1")
        self._made: dict[str, type] = {}

    def find_class(self, module: str, name: str) -> Any:
        path = f"{module}.{name}"
        if path not in _ARRAY | _SPARSE | _DICTS | _OTHER:
            raise DataError(
                f"it names {path}: refused, since only arrays, sparse matrices and "
                "plain containers may be in it"
            )
        if path not in self._made:
            base = _Dict if path in _DICTS else _Record
            self._made[path] = type(name, (base,), {"path": path})
        return self._made[path]

    def persistent_load(self, pid: Any) -> Any:
        raise DataError(f"it names the outside object {pid!r}: refused")


def read_pickle(path: Path) -> Any:
    """What a pickle of arrays, CSR matrices, lists, dicts and plain values holds.

    Raises
    ------
    DataError
        missing or damaged file, any other type in it, arrays that contradict themselves.
    """
    must_exist(path, "pickle")
    with path.open("rb") as file:
        try:
            return _built(_Unpickler(file).load())
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
        # A damaged pickle can fail in any way a stack machine can.
        except Exception as error:
            raise DataError(
                f"{path}: not a whole pickle: {error or type(error).__name__}"
            ) from None


def _built(thing: Any) -> Any:
    if not isinstance(thing, _Record):
        return thing
    if thing.path in _SPARSE or thing.path.endswith("_reconstructor"):
        return _built_csr(thing)
    return _built_array(thing)


def _built_csr(record: _Record) -> sp.csr_array:
    parts = record.state if isinstance(record.state, dict) else {}
    missing = [k for k in ("_shape", "indptr", "indices", "data") if k not in parts]
    if missing:
        raise DataError(f"a sparse matrix in it lacks {', '.join(missing)}")
    shape = parts["_shape"]
    if not (isinstance(shape, tuple) and len(shape) == 2 and all(type(n) is int for n in shape)):
        raise DataError(f"a sparse matrix in it has shape {shape!r}: allowed are two numbers")
    indptr, indices, data = (_built_array(parts[k]) for k in ("indptr", "indices", "data"))
    whole(indptr, "row starts of a sparse matrix in it", ndim=1)
    whole(indices, "columns of a sparse matrix in it", ndim=1)
    if data.ndim != 1:
        raise DataError(f"values of a sparse matrix in it have shape {data.shape}")
    return checked_csr(data, indices, indptr, cast(tuple[int, int], shape), "a sparse matrix in it")


def _built_array(record: Any) -> Array:
    """The array of a record whose state is (version, shape, dtype, in Fortran's order, bytes)."""
    if not (isinstance(record, _Record) and record.path in _ARRAY):
        raise DataError(f"an array was expected in it, not {type(record).__name__}")
    if not (isinstance(record.state, tuple) and len(record.state) == 5):
        raise DataError("an array in it has no contents")
    _, shape, kind, fortran, raw = record.state
    dtype = _built_dtype(kind)
    if not (isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)):
        raise DataError(f"an array in it has shape {shape!r}")
    content = _built_bytes(raw)
    size = dtype.itemsize
    for length in shape:
        size *= length
    if size != len(content):
        raise DataError(f"an array in it claims {size} bytes, but holds {len(content)}")
    flat = np.frombuffer(content, dtype).astype(dtype.newbyteorder("="))
    return flat.reshape(shape, order="F" if fortran else "C")


def _built_dtype(record: Any) -> np.dtype[Any]:
    """The dtype of a record called with ("f4", …) whose state is (version, "<", …)."""
    code = record.args[0] if isinstance(record, _Record) and record.args else None
    if code not in _DTYPES:
        raise DataError(f"an array in it is of dtype {code!r}: allowed are plain numbers")
    state = record.state
    order = state[1] if isinstance(state, tuple) and len(state) > 1 else "="
    if order not in ("<", ">", "|", "="):
        raise DataError(f"an array in it has byte order {order!r}")
    return np.dtype(f"{order}{code}")


def _built_bytes(raw: Any) -> bytes:
    """Bytes as Python 3 pickled them, or as text where Python 2 did (read as latin-1)."""
    if isinstance(raw, _Record) and raw.path == "_codecs.encode" and raw.args:
        raw = raw.args[0]
    if isinstance(raw, _Record) and raw.path.endswith(".bytes") and not raw.args:
        return b""
    if isinstance(raw, str):
        return raw.encode("latin1")
    if isinstance(raw, bytes):
        return raw
    raise DataError(f"an array in it holds {type(raw).__name__}: allowed are bytes")
