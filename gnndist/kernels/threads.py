"""Rows dealt to threads: a small pool of Python threads that run compiled, lock-free functions.

Not numba's own parallel layers, which cannot be entered from two Python threads at once nor after a
fork. A row is computed whole by one thread and in a fixed order, so results do not depend on how
many threads there are.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import pairwise

import torch

MIN_WORK = 1 << 17
"""Multiply-adds below which handing work to a second thread costs more than it saves."""

CHUNKS_PER_THREAD = 4
"""More than one, so that a thread held up by another process leaves its work to the others."""


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """The pool of this process: `process` is a key, since threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="gnndist-kernel")


def chunk_count(work: int) -> int:
    """How many chunks to cut `work` multiply-adds into for `torch.get_num_threads()` threads."""
    threads = torch.get_num_threads()
    if threads == 1 or work < 2 * MIN_WORK:
        return 1
    return min(threads * CHUNKS_PER_THREAD, work // MIN_WORK)


def even_chunks(rows: int, count: int) -> list[int]:
    """Bounds [count + 1] of `count` runs of nearly equally many rows."""
    return [rows * part // count for part in range(count + 1)]


def run_chunks(task: Callable[[int, int], object], bounds: Sequence[int]) -> None:
    """Call `task(first, last)` for every pair of neighbouring bounds, on this thread and the pool.

    Returns when all are done; raises what the first failed one raised.
    """
    pairs = [(a, b) for a, b in pairwise(bounds) if a < b]
    if len(pairs) < 2 or torch.get_num_threads() == 1:
        for first, last in pairs:
            task(first, last)
        return
    pending = iter(pairs)  # next() on a list iterator is atomic: each chunk is taken once

    def drain() -> None:
        for first, last in pending:
            task(first, last)

    helpers = min(torch.get_num_threads(), len(pairs)) - 1
    pool = _pool(os.getpid(), torch.get_num_threads() - 1)
    futures = [pool.submit(drain) for _ in range(helpers)]
    try:
        drain()
    finally:
        wait(futures)
    for future in futures:
        future.result()
