"""Watches the ranks of a job: however it ends, all end, with one message.

torchrun's agent ends a job too when a rank fails. It does not notice one that hangs, kills ranks
30 seconds after SIGTERM even in the middle of an epoch, and prints a report of 20 lines; so jobs
have this launcher, with the same environment for the ranks.
"""

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from gnndist.crew import Crew, LocalCrew, RankProcess
from gnndist.errors import (
    FAILED,
    INTERRUPTED,
    STOPPED,
    USER_MISTAKE,
    GnndistError,
    JobFailed,
    JobStopped,
)
from gnndist.failures import DIVERGED, HOST, MEMORY, PEER, USER, Note, read_note
from gnndist.status import BOARD_FILE, Board

POLL_S = 0.05
SUSPENDED_S = 15.0
"""how long a rank may be stopped (SIGSTOP)"""
LEAST_PATIENCE_S, PATIENCE_EPOCHS = 25.0, 5.0
"""how long no rank may move within an epoch: these seconds or epochs, whichever is longer"""
CAUSE_S = 3.0
"""how long to look for the cause when a rank says that it lost another"""
_HAPPENED = {MEMORY: "ran out of memory", PEER: "was cut off", HOST: "was lost"}
STEP = ("forward", "backward", "update")
"""phases that take about as long in every epoch"""


@dataclass(kw_only=True)
class Supervisor:
    """One job of ranks."""

    arguments: Sequence[str]
    """of `python -m gnndist`"""
    ranks: int
    environment: Mapping[str, str]
    """of every rank, besides what tells it its place"""
    logs: Path | None = None
    """where the ranks' logs go; None: a temporary folder, kept only if the job fails"""
    timeout_s: float = 600.0
    """how long no rank may move; 0: for ever"""
    max_restarts: int = 0
    """how often a failed job is started again"""
    on_restart: Callable[[str, int], None] = lambda message, attempt: None
    """told why, and which restart it is (from 1)"""
    crew: Crew | None = None
    """who starts the ranks; None: all on this machine"""
    _workers: Sequence[RankProcess] = ()
    _exits: dict[int, int] = field(default_factory=dict)

    def run(self) -> None:
        """Run the job to its end.

        Raises
        ------
        JobFailed
            when a rank failed; none is left.
        JobStopped
            when SIGTERM or SIGINT stopped it.
        """
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gnndist-")))
            signals = stack.enter_context(caught_signals())
            logs = self._log_folder(folder)
            for attempt in range(self.max_restarts + 1):
                try:
                    return self._attempt(attempt, folder, logs, signals)
                except _Failure as failure:
                    message = self._keep_logs(str(failure), logs, folder)
                    if failure.final or attempt == self.max_restarts or signals.count:
                        raise JobFailed(message, failure.code) from None
                    self.on_restart(message, attempt + 1)

    def _attempt(self, attempt: int, folder: Path, logs: Path, signals: "Signals") -> None:
        for note in folder.glob("note-*"):
            note.unlink()
        board = Board(folder / BOARD_FILE, self.ranks)
        environment = {**self.environment, "TORCHELASTIC_RESTART_COUNT": str(attempt)}
        crew = self.crew or LocalCrew(self.ranks)
        self._workers, self._exits = (), {}
        try:
            self._workers = self._started(crew, environment, folder, logs)
            self._watch(board, folder, logs, signals, crew)
        finally:
            self._end_all()
            crew.close()

    def _started(
        self, crew: Crew, environment: Mapping[str, str], folder: Path, logs: Path
    ) -> Sequence[RankProcess]:
        try:
            return crew.start(self.arguments, environment, folder, logs)
        except GnndistError as error:
            raise _Failure(str(error), code=USER_MISTAKE, final=True) from error

    # --- watching -------------------------------------------------------------------------------

    def _watch(
        self, board: Board, folder: Path, logs: Path, signals: "Signals", crew: Crew
    ) -> None:
        """Return when every rank has ended well."""
        suspended: dict[int, float] = {}
        while True:
            self._pass_on(signals)
            self._reap()
            if any(code not in (0, STOPPED) for code in self._exits.values()):
                self._fail(board, folder, logs, signals, crew)
            if len(self._exits) == self.ranks:
                if STOPPED in self._exits.values():
                    raise JobStopped(f"stopped after epoch {board.ranks[0].epoch}")
                return
            board.look()
            self._check_suspended(suspended, board, logs)
            if board.still_s() > self._patience(board):
                self._hangs(board, logs)
            time.sleep(POLL_S)

    def _pass_on(self, signals: "Signals") -> None:
        """Pass SIGTERM and SIGINT on: the ranks finish their epoch; the second time they do not."""
        if signals.count > 1:
            raise JobStopped("interrupted", INTERRUPTED)
        if signals.count > signals.passed:
            signals.passed = signals.count
            for rank, worker in enumerate(self._workers):
                if rank not in self._exits:
                    worker.signal(signal.SIGTERM)

    def _reap(self) -> None:
        for rank, worker in enumerate(self._workers):
            if rank not in self._exits and (code := worker.poll()) is not None:
                self._exits[rank] = code

    def _check_suspended(self, since: dict[int, float], board: Board, logs: Path) -> None:
        now = time.monotonic()
        limit = min(SUSPENDED_S, self.timeout_s) if self.timeout_s else float("inf")
        for rank, worker in enumerate(self._workers):
            if rank in self._exits or not worker.is_suspended():
                since.pop(rank, None)
            elif now - since.setdefault(rank, now) > limit:
                failure = _Failure(
                    f"{self._name(rank)} has been suspended (SIGSTOP) for "
                    f"{now - since[rank]:.0f} s ({board.ranks[rank]}); see {_log(logs, rank)}"
                )
                self._dump(board, [rank])
                raise failure

    def _patience(self, board: Board) -> float:
        """How long no rank may move: short where epochs are, once there have been some."""
        if self.timeout_s == 0:
            return float("inf")
        running = [s for rank, s in enumerate(board.ranks) if rank not in self._exits]
        if board.longest_epoch_s == 0 or any(status.phase not in STEP for status in running):
            return self.timeout_s
        return min(self.timeout_s, max(LEAST_PATIENCE_S, PATIENCE_EPOCHS * board.longest_epoch_s))

    # --- what went wrong ------------------------------------------------------------------------

    def _hangs(self, board: Board, logs: Path) -> NoReturn:
        rank = board.behind()
        running = [r for r in range(self.ranks) if r not in self._exits]
        hosts = list(dict.fromkeys(self._workers[r].host for r in running))
        still = f"no rank has moved for {board.still_s():.0f} s"
        said = f"{self._name(rank)} hangs ({board.ranks[rank]}): {still}"
        if len(hosts) > 1 and all(board.ranks[r].waits for r in running):
            said += f" and all wait for one another: the network between {_listed(hosts)} is cut"
        failure = _Failure(f"{said}; see {_log(logs, rank)}")
        self._dump(board, running)
        raise failure

    def _dump(self, board: Board, ranks: Sequence[int]) -> None:
        """Have ranks write to their logs what they are doing (`failures.as_rank` listens)."""
        for rank in ranks:
            if board.ranks[rank].phase != "start":
                self._workers[rank].signal(signal.SIGUSR1)
            self._workers[rank].signal(signal.SIGCONT)
        time.sleep(0.5)

    def _fail(
        self, board: Board, folder: Path, logs: Path, signals: "Signals", crew: Crew
    ) -> NoReturn:
        """Find the rank whose failure caused the others'."""
        deadline = time.monotonic() + CAUSE_S
        while True:
            self._reap()
            bad = {rank: code for rank, code in self._exits.items() if code not in (0, STOPPED)}
            notes = {rank: read_note(folder, rank) for rank in bad}
            causes = [rank for rank, note in notes.items() if note is None or note.kind != PEER]
            if causes or (time.monotonic() > deadline and not crew.expects_news()):
                break
            time.sleep(POLL_S)
        if signals.count and causes and all(bad[rank] == -signal.SIGTERM for rank in causes):
            raise JobStopped("stopped at once: the ranks were not yet, or no longer, in an epoch")
        suspended = [r for r in range(self.ranks) if self._workers[r].is_suspended()]
        rank = (causes or suspended or list(bad))[0]
        status = board.ranks[rank]
        note, code = notes.get(rank), bad.get(rank, 0)
        where = f"({status}); see {_log(logs, rank)}"
        if note is not None:
            raise _Failure.of(note, self._name(rank), str(status), _log(logs, rank))
        if code < 0:
            raise _Failure(f"{self._name(rank)} was killed by {_signal_name(-code)} {where}")
        if code > 0:
            raise _Failure(f"{self._name(rank)} exited with code {code} {where}")
        raise _Failure(f"{self._name(rank)} is suspended (SIGSTOP) {where}")

    def _name(self, rank: int) -> str:
        return f"rank {rank} on {self._workers[rank].host}"

    # --- the end --------------------------------------------------------------------------------

    def _end_all(self) -> None:
        """Kill what still runs, and whatever it started."""
        for rank, worker in enumerate(self._workers):
            if rank not in self._exits:
                worker.end()
        deadline = time.monotonic() + 10
        while len(self._exits) < len(self._workers) and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.01)

    def _log_folder(self, folder: Path) -> Path:
        if self.logs is not None:
            with suppress(OSError):
                self.logs.mkdir(exist_ok=True)
                for log in self.logs.glob("rank-*.log"):
                    log.unlink()
                return self.logs
        return folder

    @staticmethod
    def _keep_logs(message: str, logs: Path, folder: Path) -> str:
        """Move logs out of the temporary folder, which is about to go."""
        if logs != folder:
            return message
        kept = Path(tempfile.mkdtemp(prefix="gnndist-logs-"))
        for log in folder.glob("rank-*.log"):
            shutil.copy(log, kept)
        return message.replace(str(folder), str(kept))


class _Failure(Exception):
    """Why a job failed; whether starting it again could help."""

    def __init__(self, message: str, *, code: int = FAILED, final: bool = False) -> None:
        super().__init__(message)
        self.code, self.final = code, final

    @classmethod
    def of(cls, note: Note, name: str, status: str, log: Path) -> "_Failure":
        """From the note that a rank has left."""
        if note.kind == USER:
            return cls(f"{note.message} ({name}, {status})", code=USER_MISTAKE, final=True)
        if note.kind == DIVERGED:
            return cls(f"training diverged: {note.message}", final=True)
        what = _HAPPENED.get(note.kind, "failed")
        return cls(f"{name} {what} ({status}): {note.message}; see {log}")


def _log(logs: Path, rank: int) -> Path:
    return logs / f"rank-{rank}.log"


def _signal_name(number: int) -> str:
    name = signal.Signals(number).name
    return f"{name} (the kernel does this when memory runs out)" if name == "SIGKILL" else name


def _listed(hosts: Sequence[str]) -> str:
    return f"{', '.join(hosts[:-1])} and {hosts[-1]}"


@dataclass
class Signals:
    """SIGTERM and SIGINT that have come, and how many of them were passed on."""

    count: int = 0
    passed: int = 0


@contextmanager
def caught_signals() -> Iterator[Signals]:
    """Count SIGTERM and SIGINT instead of dying of them (in a program's main thread)."""
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def note(number: int, frame: FrameType | None) -> None:
        signals.count += 1

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
