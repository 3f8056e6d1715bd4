"""Processes: one command becomes N local ranks, or joins a job that a launcher has started.

A worker is the same command run again inside torchrun's environment (RANK, WORLD_SIZE, …), so
`gnndist train … --ranks N`, `torchrun -m gnndist train …` and any other launcher that sets those
variables lead to the same place.
"""

import datetime
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from gnndist.comm import Comm, ProcessComm, SingleComm
from gnndist.errors import ConfigError


def is_worker() -> bool:
    """Whether a launcher has started this process as a rank of a job."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def launched_here() -> bool:
    """Whether `run_ranks_of` started this rank, and its parent has prepared the run directory."""
    return _LAUNCHED in os.environ


_LAUNCHED = "GNNDIST_LAUNCHED"


def run_ranks_of(arguments: Sequence[str], ranks: int) -> None:
    """Run `python -m gnndist ARGUMENTS` as `ranks` local worker processes and wait for them.

    Exits with the workers' code if one failed.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(threads_for(ranks)))
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    os.environ[_LAUNCHED] = "1"
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=str(os.getpid()),
        max_restarts=0,
        monitor_interval=0.1,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "gnndist", *arguments)
    except ChildFailedError as error:
        codes = {failure.exitcode for failure in error.failures.values()}
        sys.exit(2 if 2 in codes else 1)


def threads_for(ranks: int) -> int:
    """This machine's cores shared out over its ranks."""
    return max(1, len(os.sched_getaffinity(0)) // ranks)


def pick_device(name: str) -> torch.device:
    """The device of this rank: `auto` takes a GPU where there is one.

    Raises
    ------
    ConfigError
        if `cuda` is asked for and there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device = 'cuda': this machine has none that torch can use")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    index = int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()
    return torch.device("cuda", index)


@contextmanager
def joined(device: torch.device, *, threads: int = 0, timeout_s: float = 600) -> Iterator[Comm]:
    """This process's place in its job; alone it needs no process group."""
    world = int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    torch.set_num_threads(threads or threads_for(local))
    if world == 1:
        yield SingleComm()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        timeout=datetime.timedelta(seconds=timeout_s),
    )
    try:
        yield ProcessComm()
    finally:
        dist.destroy_process_group()
