"""How fast this machine's cores do what a training step does, measured once and kept.

Every figure is of one core while all the others are busy with the same: that is how ranks on one
host work, and it leaves nothing to assume about memory bandwidth they share. A rank with t threads
is taken to be t times as fast as one core. Results are kept in the user's cache directory, by
machine, versions and sources of the kernels and of what measures them.
"""

import hashlib
import json
import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnndist import kernels
from gnndist.kernels import CSR, bias_relu_dropout, compile_kernels, spmm

Sizes = NDArray[np.float64]
SECONDS = 0.12
"""how long each figure is measured, a few times over"""
REPEATS = 3
ROWS = 8192
"""of the dense products that are measured"""
MEASURING = ("rates", "wire", "locality", "edge_kernels")
"""modules of this package that measure"""
STREAMS = (1 << 20, 1 << 22, 1 << 24, 1 << 26)
"""bytes of the arrays on which elementwise operations are measured"""


@dataclass(kw_only=True)
class Rates:
    """Seconds of one core. What has not been measured before is measured when asked for."""

    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    path: Path | None = None
    """where figures are kept; None keeps them in memory only"""
    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_this_machine(cls, *, again: bool = False) -> "Rates":
        """With what was measured before, unless `again`."""
        path = cache_directory() / f"rates-{machine_key()}.json"
        rates = cls(path=path)
        if not again and path.is_file():
            try:
                rates.values = json.loads(path.read_text())
            except (OSError, ValueError):
                rates.values = {}
        return rates

    def get(self, key: str, measure: Callable[[], Any]) -> Any:
        """The figure called `key`."""
        if key not in self.values:
            self.values[key] = measure()
            self._save()
        return self.values[key]

    def _save(self) -> None:
        if self.path is None:
            return
        unfinished = self.path.with_suffix(f".{os.getpid()}.partial")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_text(json.dumps(self.values, indent=1, sort_keys=True) + "\n")
            unfinished.replace(self.path)
        except OSError:
            self.path = None  # a cache that cannot be written is no reason to fail

    # --- what is measured -----------------------------------------------------------------------

    def product(self, k: int, n: int, *, inner: bool, dtype: torch.dtype) -> float:
        """Seconds a floating-point operation of [rows, k] @ [k, n], or with the rows summed."""
        key = f"product {k}x{n} {'inner' if inner else 'outer'} {_name(dtype)}"
        return float(self.get(key, lambda: self._product(k, n, inner, dtype)))

    def stream(self, nbytes: Sizes, *, fused: bool) -> Sizes:
        """Seconds a byte read or written by an elementwise operation on arrays of so many bytes.

        Torch's own operations write to memory fresh from the allocator; `fused` is this package's
        kernel, whose output memory is used again.
        """
        kind = "fused" if fused else "torch"
        table = [
            self.get(f"stream {size} {kind}", partial(self._stream, size, fused))
            for size in STREAMS
        ]
        return np.asarray(np.interp(np.log2(np.maximum(nbytes, 1.0)), np.log2(STREAMS), table))

    def _product(self, k: int, n: int, inner: bool, dtype: torch.dtype) -> float:
        def prepare() -> Callable[[], object]:
            a, b = torch.randn(ROWS, k, dtype=dtype), torch.randn(k, n, dtype=dtype)
            c = torch.randn(ROWS, n, dtype=dtype)
            if inner:
                return lambda: torch.mm(a.t(), c, out=b)
            return lambda: torch.mm(a, b, out=c)

        return on_all_cores(prepare, self.cores) / (2.0 * ROWS * k * n)

    def _stream(self, nbytes: int, fused: bool) -> float:
        def seconds(rows: int) -> float:
            def prepare() -> Callable[[], object]:
                a, b = torch.randn(rows, 256), torch.randn(rows, 256)
                if fused:
                    shift = torch.zeros(256)
                    return lambda: bias_relu_dropout(a, shift, 0.5, 7, 0, out=b)
                return lambda: a + b

            return on_all_cores(prepare, self.cores)

        rows = nbytes // 1024  # of 256 numbers; what a call costs besides is counted elsewhere
        return max(seconds(rows) - seconds(1), 0.0) / ((2 if fused else 3) * rows * 1024)

    def sparse(self, key: str, matrix: CSR, width: int) -> float:
        """Seconds of the product of a matrix with `width` features, kept under `key`."""

        def prepare() -> Callable[[], object]:
            x = torch.randn(matrix.num_cols, width)
            out = torch.empty(matrix.num_rows, width)
            return lambda: spmm(matrix, x, out=out)

        return float(self.get(key, lambda: on_all_cores(prepare, self.cores)))


def on_all_cores(prepare: Callable[[], Callable[[], object]], cores: int) -> float:
    """Seconds of a call, on each core with one thread at the same time; the best of a few tries.

    `prepare` makes the call for one core: its own data.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    compile_kernels()
    try:
        calls = [prepare() for _ in range(cores)]
        for call in calls:
            call()
        return min(_together(calls) for _ in range(REPEATS))
    finally:
        torch.set_num_threads(before)


def _together(calls: list[Callable[[], object]]) -> float:
    """Mean seconds of a call while all are called again and again.

    Seconds of the thread, not of the clock: other programs may be running.
    """
    barrier = threading.Barrier(len(calls))
    seconds = [0.0] * len(calls)

    def work(at: int) -> None:
        torch.set_num_threads(1)
        barrier.wait()
        start = time.thread_time()
        count = 0
        while time.thread_time() - start < SECONDS or count < 2:
            calls[at]()
            count += 1
        seconds[at] = (time.thread_time() - start) / count

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(seconds) / len(seconds)


def cache_directory() -> Path:
    """Where this user's machine keeps what can be measured again."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "gnndist"


def machine_key() -> str:
    """A name for this machine, these versions, these kernels and this way of measuring them."""
    sources = sorted(Path(kernels.__file__).parent.glob("*.py"))
    sources += [Path(__file__).with_name(f"{name}.py") for name in MEASURING]
    parts = [
        platform.node(),
        _cpu_name(),
        str(len(os.sched_getaffinity(0))),
        torch.__version__,
        *(path.read_text() for path in sources),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), "")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
