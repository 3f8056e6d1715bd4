"""Kernels compiled once for a machine: numba functions with fixed signatures and a shared cache.

numba writes compiled code beside the source (or in NUMBA_CACHE_DIR, or in the user's cache
directory where neither is writable). Two things are added here: one lock over all processes, so
that several ranks that start together compile once, and a stamp over all of this package's
sources, since numba looks at the one file a kernel is in and not at the helpers it calls.
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
        self.compiled: set[Any] = set()
        REGISTRY.append(self)

    def __call__(self, variant: Any) -> Callable[..., Any]:
        """The compiled function that takes this variant's arguments."""
        if variant not in self.compiled:
            self.compile(variant)
        return self.dispatcher  # type: ignore[no-any-return]

    def compile(self, variant: Any) -> None:
        """Load this variant from the cache, or compile it; other processes wait meanwhile."""
        folder = Path(self.dispatcher.stats.cache_path)
        with COMPILING, _lock(folder):
            _drop_stale(folder)
            self.dispatcher.compile(self.signatures[variant])
            self.compiled.add(variant)


REGISTRY: list[Kernel] = []
"""Every kernel of the package, filled as its modules are imported."""

COMPILING = threading.RLock()


@lru_cache(maxsize=4)
def _lock(folder: Path) -> FileLock:
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "gnndist-kernels.lock")


@lru_cache(maxsize=4)
def _drop_stale(folder: Path) -> None:
    """Remove cached code made from other sources of this package (called under the lock)."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text() == digest:
        return
    stems = {path.stem for path in sources}
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
