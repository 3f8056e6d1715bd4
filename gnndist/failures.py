"""How a rank says why it failed: a note for the launcher, its traceback for the log.

Light, so that even a rank which cannot import torch can say so.
"""

import ctypes
import faulthandler
import json
import os
import platform
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import click

from gnndist.errors import USER_MISTAKE, GnndistError

BOARD = "GNNDIST_BOARD"
"""environment variable: the folder of the launcher's board and the ranks' notes"""
LAUNCHED = "GNNDIST_LAUNCHED"
"""environment variable: the process id of gnndist's own launcher"""

USER, PEER, MEMORY, DIVERGED, ERROR = "user", "peer", "memory", "diverged", "error"
HOST = "host"
"""the kind of note that a launcher writes where a rank's host is gone"""

LINGER_S = 4.0
"""how long a failed rank 0 stays where the other ranks depend on it to tell who speaks"""


class PeerLost(RuntimeError):
    """Communication failed: another rank is gone, or slower than the timeout allows."""


class Note(NamedTuple):
    """Why a rank failed."""

    kind: str
    """user: something to put right; peer: another rank was lost; memory; diverged; error"""
    message: str
    """one line"""


def is_worker() -> bool:
    """Whether a launcher has started this process as a rank of a job."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextmanager
def as_rank() -> Iterator[None]:
    """Run as a rank of a job, if a launcher started this process: a failure ends it with a note."""
    if not is_worker():
        yield
        return
    _end_with_launcher()
    # Before torch is loaded: its warnings (of addresses without a name) are not for people.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        yield
    except Exception as error:
        code = _report(error)
        # Not through the interpreter's exit, which would wait for threads of communication.
        sys.stdout.flush()
        os._exit(code)


def note_of(error: BaseException) -> Note:
    """What an exception means for the person who runs the job."""
    text = " ".join(str(error).split())
    if isinstance(error, GnndistError):
        return Note(USER, text)
    if isinstance(error, click.ClickException):
        return Note(USER, error.format_message())
    named = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, PeerLost):
        return Note(PEER, text)
    if isinstance(error, ArithmeticError) and type(error).__name__ == "Diverged":
        return Note(DIVERGED, text)
    out = "out of memory" in text or "allocate memory" in text
    if out or isinstance(error, MemoryError):
        return Note(MEMORY, named)
    return Note(ERROR, named)


def read_note(folder: Path, rank: int) -> Note | None:
    """The note that a rank has left, if it has."""
    try:
        return Note(*json.loads((folder / f"note-{rank}.json").read_text()))
    except (OSError, ValueError):
        return None


def leave_traceback(error: Exception, log: Path) -> None:
    """Put a rank's traceback into its log, if the disk can still take it."""
    with suppress(OSError):
        log.parent.mkdir(exist_ok=True)
        with log.open("a") as file:
            file.write(f"on {platform.node()}\n{''.join(traceback.format_exception(error))}")
        error.add_note(f"{_SEE}{log}")


_SEE = "see "


def _report(error: Exception) -> int:
    """Leave the note and the traceback; the exit code."""
    note = note_of(error)
    rank = int(os.environ["RANK"])
    notes = getattr(error, "__notes__", ())
    if not any(line.startswith(_SEE) for line in notes):
        with suppress(OSError):  # the log's disk may be full
            traceback.print_exc()
            sys.stderr.flush()
    if folder := os.environ.get(BOARD):
        partial = Path(folder) / f".note-{rank}"
        with suppress(OSError):
            partial.write_text(json.dumps(note))
            partial.replace(Path(folder) / f"note-{rank}.json")
    elif _first_to_speak(note):
        where = "".join(f" ({line})" for line in notes)
        said = f"gnndist: error: rank {rank} on {platform.node()}{where}: {note.message}"
        print(said, file=sys.stderr, flush=True)
    if BOARD not in os.environ and _serves_others():
        time.sleep(LINGER_S)  # the others learn at this rank's store that it has been said
    return USER_MISTAKE if note.kind == USER else 1


def _serves_others() -> bool:
    """Whether the ranks meet at a store in this process."""
    by_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return os.environ["RANK"] == "0" and not by_launcher and os.environ["WORLD_SIZE"] != "1"


def _first_to_speak(note: Note) -> bool:
    """Whether no other rank has told its failure yet, where no launcher of ours tells them."""
    if note.kind == PEER:
        time.sleep(2)  # whoever caused this speaks first
    with suppress(Exception):
        from datetime import timedelta

        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        socket.create_connection((address, port), timeout=5).close()  # soon knows if it is gone
        store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=5))
        return bool(store.add(f"gnndist/failed/{attempt}", 1) == 1)
    return True


def _end_with_launcher() -> None:
    """Let the kernel end this process when gnndist's launcher is gone, however it went."""
    launcher = os.environ.get(LAUNCHED)
    if launcher is None or sys.platform != "linux":
        return
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != int(launcher):
        os._exit(1)
