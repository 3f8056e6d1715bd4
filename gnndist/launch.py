"""Processes: one command becomes N local ranks, or joins a job that a launcher has started.

A worker is the same command run again inside torchrun's environment (RANK, WORLD_SIZE, …), so
`gnndist train … --ranks N`, `torchrun -m gnndist train …` and any other launcher that sets those
variables lead to the same place.
"""

import datetime
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist

from gnndist.comm import Comm, ProcessComm, SingleComm
from gnndist.crew import threads_for, worker_environment
from gnndist.device import backend_for, is_gpu, pick_device, use
from gnndist.failures import LAUNCHED, is_worker, leave_traceback
from gnndist.hosts import Hosts, HostsCrew, forwarded
from gnndist.network import INTERFACE, choose_interface
from gnndist.rendezvous import Terms, meet
from gnndist.staging import StagedComm
from gnndist.status import Status, own_board
from gnndist.store import Store
from gnndist.supervisor import Supervisor
from gnndist.watch import WatchedComm, talking

__all__ = [
    "is_worker",
    "joined",
    "launched_here",
    "launchers_copy",
    "own_status",
    "pick_device",
    "restarts",
    "run_ranks_of",
    "stop_requests",
    "threads_for",
    "worker_environment",
]


def launched_here() -> bool:
    """Whether gnndist's own launcher started this rank and has prepared the run directory."""
    return LAUNCHED in os.environ


def launchers_copy(name: str) -> Path | None:
    """The folder where this rank's launcher keeps its copy of a run's file, if it does."""
    board = own_board()
    return board.parent if board is not None and (board.parent / name).is_file() else None


def restarts() -> int:
    """How often the job that this rank belongs to has been started again (torchrun counts too)."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def run_ranks_of(
    arguments: Sequence[str],
    ranks: int,
    hosts: Hosts | None = None,
    *,
    run: Path | None = None,
    store: Store | None = None,
) -> None:
    """Run `python -m gnndist ARGUMENTS` as `ranks` worker processes and wait for them.

    Without `hosts` they run on this machine; otherwise `run` is the run directory that rank 0
    reads and `store` what every host needs its part of.

    Raises
    ------
    JobFailed
        if one failed; all have ended.
    """
    Supervisor(
        arguments=arguments,
        ranks=ranks,
        environment=forwarded() if hosts else worker_environment(ranks),
        crew=HostsCrew(hosts=hosts, run=run, store=store) if hosts else None,
    ).run()


def own_status() -> Status:
    """This rank's slot of its launcher's board, or one that nobody reads."""
    board = own_board()
    return Status() if board is None else Status.on(board, int(os.environ["RANK"]))


@contextmanager
def joined(
    device: torch.device,
    *,
    threads: int = 0,
    timeout_s: float = 600,
    status: Status | None = None,
    logs: Path | None = None,
    terms: Terms | None = None,
) -> Iterator[Comm]:
    """This process's place in its job; alone it needs no process group.

    Parameters
    ----------
    timeout_s:
        how long to wait for other ranks before giving them up (0: for ever). Ranks that gnndist
        launched itself wait twice as long: their launcher knows sooner, and more.
    status:
        where to note what this rank does.
    logs:
        where a failing rank leaves its traceback if its launcher keeps no logs.
    terms:
        what all ranks must have the same: the fingerprint of the store, options. The versions of
        gnndist and torch are always compared.

    Raises
    ------
    ConfigError
        rank 0 cannot be reached, or ranks differ in what they must have the same.
    """
    status = status or own_status()
    world = int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    torch.set_num_threads(threads or threads_for(local))
    try:
        if world == 1:
            yield SingleComm()
            return
        use(device)
        rank, backend = int(os.environ["RANK"]), backend_for(device, local)
        for_ever = 30 * 86400.0
        patience_s = (2 * timeout_s if launched_here() else timeout_s) or for_ever
        with talking(status):
            store = meet(rank, world, {**(terms or {}), "backend": backend}, patience_s)
            _choose_interface(several_hosts=local < world)
            dist.init_process_group(
                backend,
                store=store,
                rank=rank,
                world_size=world,
                timeout=datetime.timedelta(seconds=patience_s),
            )
        own: Comm = ProcessComm()
        if is_gpu(device) and backend == "gloo":
            own = StagedComm(own)
        yield WatchedComm(own, status)
        # Not after a failure: it would wait for ranks that may be gone.
        dist.destroy_process_group()
    except Exception as error:
        error.add_note(str(status))
        if logs is not None and not launched_here():
            leave_traceback(error, logs / f"rank-{os.environ.get('RANK', 0)}.log")
        raise


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Take SIGTERM and SIGINT as requests to stop after the epoch; tells whether one has come."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _choose_interface(*, several_hosts: bool) -> None:
    """Tell gloo which interface to bind to: it would ask for the address of the host's name."""
    interface = choose_interface(os.environ["MASTER_ADDR"], several_hosts=several_hosts)
    if interface is not None:
        os.environ[INTERFACE] = interface
