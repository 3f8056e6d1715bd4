"""Kernels are compiled once a machine, by one process, and work after a fork."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kernel_matrices import csr, normal, random_dense

from gnndist.kernels import compile_kernels, hash_dropout, spmm
from gnndist.kernels.compiling import INNER, REGISTRY, STAMP
from gnndist.kernels.threads import MIN_WORK, run_chunks

COUNT = """
import sys, torch
from gnndist.kernels import CSR, spmm
from gnndist.kernels.spmm import SPMM
matrix = CSR(indptr=torch.tensor([0, 1]), indices=torch.tensor([0]), num_cols=1)
assert spmm(matrix, torch.ones(1, 3)).tolist() == [[1.0, 1.0, 1.0]]
stats = SPMM.dispatcher.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def counts(cache: Path, processes: int) -> list[tuple[int, int]]:
    """(loaded, compiled) of so many processes that start together."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", COUNT], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(processes)
    ]
    outputs = [process.communicate(timeout=200)[0].split() for process in started]
    assert [process.returncode for process in started] == [0] * processes
    return [(int(hits), int(misses)) for hits, misses in outputs]


@pytest.mark.slow
def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    assert sorted(counts(tmp_path, 3)) == [(0, 1), (1, 0), (1, 0)]
    assert counts(tmp_path, 1) == [(1, 0)]
    # other inner functions: the cache is of no use
    (stamp,) = tmp_path.rglob(STAMP)
    stamp.write_text("other sources")
    assert counts(tmp_path, 1) == [(0, 1)]
    assert counts(tmp_path, 1) == [(1, 0)]


def test_compiling_all_covers_every_variant_and_no_more() -> None:
    steps: list[tuple[int, int]] = []
    seconds = compile_kernels(lambda done, total: steps.append((done, total)))
    assert seconds > 0
    count = sum(len(kernel.signatures) for kernel in REGISTRY)
    assert steps == [(step, count) for step in range(1, count + 1)]
    for kernel in REGISTRY:
        assert set(kernel.compiled) == set(kernel.signatures)
    # inner functions are known by the stamp, and no kernel is in a file of theirs
    modules = {Path(kernel.dispatcher.py_func.__code__.co_filename).name for kernel in REGISTRY}
    assert not modules & set(INNER)


def product_in_child(connection: object, matrix: object, x: torch.Tensor) -> None:
    # no operation of torch's own here: its OpenMP threads do not survive a fork
    connection.send(spmm(matrix, x).numpy().tobytes())  # type: ignore[attr-defined, arg-type]


def test_kernels_work_after_a_fork() -> None:
    """The pool's threads do not survive a fork; a child makes its own."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    matrix, x = csr(random_dense(400, 300, 0, density=0.1)), normal(300, 100)
    assert matrix.nnz * 100 > 4 * MIN_WORK
    expected = spmm(matrix, x).numpy().tobytes()  # the pool is running now
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=product_in_child, args=(sender, matrix, x), daemon=True)
    child.start()
    sender.close()
    answered = receiver.poll(60)
    received = receiver.recv() if answered else None
    child.kill()
    child.join()
    torch.set_num_threads(before)
    assert answered, "the child hangs"
    assert received == expected


def test_a_failure_in_a_chunk_is_raised_after_the_others_are_done() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    done: list[int] = []

    def task(first: int, last: int) -> None:
        if first == 2:
            raise RuntimeError("chunk 2")
        done.append(first)

    with pytest.raises(RuntimeError, match="chunk 2"):
        run_chunks(task, [0, 1, 2, 3, 4, 5, 6, 7, 8])
    torch.set_num_threads(before)
    assert 2 not in done
    assert {0, 1} <= set(done)


def test_kernels_take_readers_of_other_memory() -> None:
    """Tensors over numpy's memory, and ones that need a gradient, are taken as they are."""
    x = torch.from_numpy(normal(6, 5).numpy())
    needs = normal(6, 5).requires_grad_()
    assert torch.equal(hash_dropout(x, 0.5, 1, 0), hash_dropout(needs, 0.5, 1, 0))
