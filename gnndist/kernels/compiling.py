"""Kernels compiled once for a machine: numba functions with fixed signatures and a shared cache.

numba writes compiled code beside the source (or in NUMBA_CACHE_DIR, or in the user's cache
directory where neither is writable). Two things are added here: one lock over all processes, so
that several ranks that start together compile once, and a stamp over the modules that kernels take
their inner functions from, since numba looks at the one file a kernel itself is in.
"""

import hashlib
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
from filelock import FileLock

STAMP = "gnndist-kernels.stamp"
INNER = ("arithmetic.py", "hashing.py", "tiles.py", "vector.py")
"""Modules of functions that are compiled into other modules' kernels."""


class Kernel:
    """A function compiled for the given signatures, each on its first use or by `compile`.

    Parameters
    ----------
    function:
        what `numba.njit` takes; it runs without the interpreter lock.
    signatures:
        name of a variant → numba signature. Only these are ever compiled.
    """

    def __init__(self, function: Callable[..., Any], signatures: dict[Any, Any]) -> None:
        self.dispatcher = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
        self.signatures = signatures
        self.compiled: dict[Any, Callable[..., Any]] = {}
        REGISTRY.append(self)

    def __call__(self, variant: Any) -> Callable[..., Any]:
        """The compiled function of this variant. It does not check its arguments' types."""
        if variant not in self.compiled:
            self.compile(variant)
        return self.compiled[variant]

    def compile(self, variant: Any) -> None:
        """Load this variant from the cache, or compile it; other processes wait meanwhile."""
        folder = Path(self.dispatcher.stats.cache_path)
        signature = self.signatures[variant]
        with COMPILING, _lock(folder):
            _drop_stale(folder)
            self.dispatcher.compile(signature)
            # The entry itself: calling the dispatcher would compile again for every other mix of
            # Python's int and float with numpy's.
            self.compiled[variant] = self.dispatcher.overloads[signature.args].entry_point


REGISTRY: list[Kernel] = []
"""Every kernel of the package, filled as its modules are imported."""

COMPILING = threading.RLock()


@lru_cache(maxsize=4)
def _lock(folder: Path) -> FileLock:
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "gnndist-kernels.lock")


@lru_cache(maxsize=4)
def _drop_stale(folder: Path) -> None:
    """Remove cached code made from other inner functions (called under the lock)."""
    package = Path(__file__).parent
    inner = b"".join((package / name).read_bytes() for name in INNER)
    digest = hashlib.sha256(inner).hexdigest()
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text() == digest:
        return
    stems = {path.stem for path in package.glob("*.py")}
    for cached in folder.glob("*.nb[ic]"):
        if cached.name.partition(".")[0] in stems:
            cached.unlink(missing_ok=True)
    stamp.write_text(digest)


def compile_kernels(progress: Callable[[int, int], object] | None = None) -> float:
    """Compile and cache every kernel for this machine; only load them where that was done before.

    Call it once before starting ranks, so that no rank compiles inside a timed epoch.

    Parameters
    ----------
    progress:
        called as progress(done, total) after each function.

    Returns
    -------
    float
        seconds it took.
    """
    started = time.perf_counter()
    work = [(kernel, variant) for kernel in REGISTRY for variant in kernel.signatures]
    for done, (kernel, variant) in enumerate(work, start=1):
        if variant not in kernel.compiled:
            kernel.compile(variant)
        if progress is not None:
            progress(done, len(work))
    return time.perf_counter() - started
