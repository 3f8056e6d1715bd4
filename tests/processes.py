"""P ranks as real processes over gloo: `run_ranks(fn, world, *args)`.

Every rank's outcome is checked: a rank that raises fails the test with its traceback, one that
dies or does not finish fails it too. `forkserver` with torch preloaded starts a rank in a few
milliseconds.
"""

import datetime
import multiprocessing as mp
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gnndist.comm import Comm, ProcessComm, SingleComm

TIMEOUT_S = 120


def fork_server() -> Any:
    """Starts processes from one that has loaded everything (see `warm`): one for all tests."""
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parent))
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["warm"])
    return context


def _rank(fn: bytes, rank: int, world: int, store: str, pipe: Connection) -> None:
    torch.set_num_threads(1)
    try:
        work, args = pickle.loads(fn)
        comm: Comm = SingleComm()
        if world > 1:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{store}",
                rank=rank,
                world_size=world,
                timeout=datetime.timedelta(seconds=60),
            )
            comm = ProcessComm()
        outcome = (True, work(comm, *args))
    except BaseException:
        outcome = (False, traceback.format_exc())
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    # Plain pickle copies tensors; a pipe's own would share memory with a process about to end.
    pipe.send_bytes(pickle.dumps(outcome))


def run_ranks(
    work: Callable[..., Any], world: int, *args: Any, timeout_s: float = TIMEOUT_S
) -> list[Any]:
    """``work(comm, *args)`` in `world` processes; what each returned, by rank."""
    context = fork_server()
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "rendezvous")
        job = pickle.dumps((work, args))
        readers, processes = [], []
        for rank in range(world):
            reader, writer = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(job, rank, world, store, writer))
            process.start()
            writer.close()
            readers.append(reader)
            processes.append(process)
        outcomes: dict[int, tuple[bool, Any]] = {}
        waiting = dict(zip(readers, range(world), strict=True))
        while waiting and all(ok for ok, _ in outcomes.values()):
            ready = wait(list(waiting), timeout=timeout_s)
            if not ready:
                break
            for reader in ready:
                rank = waiting.pop(reader)
                try:
                    outcomes[rank] = pickle.loads(reader.recv_bytes())
                except EOFError:
                    outcomes[rank] = (False, f"died with exit code {processes[rank].exitcode}")
        for process in processes:
            process.join(timeout=5 if len(outcomes) == world else 0.1)
            if process.is_alive():
                process.kill()
                process.join()
    failed = {rank: text for rank, (ok, text) in outcomes.items() if not ok}
    silent = sorted(set(range(world)) - set(outcomes))
    if failed or (silent and not failed):
        lines = [f"rank {rank}: {text}" for rank, text in failed.items()]
        lines += [f"ranks {silent} did not finish"] if silent else []
        raise AssertionError("\n".join(lines))
    return [outcomes[rank][1] for rank in range(world)]
