"""Starts one host's ranks and tells the launcher of them: `python -m gnndist.hosts.agent`.

The launcher's end of standard input closes when it goes, however it goes; then the ranks end too.
Does not import torch: it is ready before they are.
"""

import os
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from gnndist.crew import (
    PORT_SOCKET,
    LocalRank,
    Start,
    launched_by_this,
    start_process,
    worker_environment,
)
from gnndist.errors import GnndistError
from gnndist.failures import read_note
from gnndist.hosts.inventory import inventory, problem_with
from gnndist.hosts.meeting import Meeting, reach
from gnndist.hosts.messages import ALIVE_S, ORPHANED_S, Channel, Message, packed
from gnndist.network import INTERFACE, check_interface
from gnndist.status import BOARD_FILE, Board

POLL_S = 0.05
END_S = 3.0
"""how long ranks may take to die"""
RUN_FILE = "config.json"


class Agent:
    """One host's part of one job."""

    def __init__(self, reader: int, writer: int, folder: Path, start: Start) -> None:
        self._channel = Channel(reader, writer)
        self._folder = folder
        self._start = start
        self._selector = selectors.DefaultSelector()
        self._selector.register(reader, selectors.EVENT_READ, self._listen)
        self._job: Message = {}
        self._meeting: Meeting | None = None
        self._sources: dict[str, str] = {}
        """address of the first host → the interface on the way to it"""
        self._ranks: dict[int, LocalRank] = {}
        self._exited: set[int] = set()
        self._suspended: list[int] = []
        self._board: Board | None = None
        self._slots = b""
        self._read: dict[int, int] = {}
        """rank → bytes of its log that have been sent"""
        self._output: int | None = None
        """what rank 0 prints"""
        self._heard = self._spoke = time.monotonic()
        self._ending = False

    def run(self) -> None:
        """Do what the launcher says until it says end, or is gone."""
        try:
            while not self._ending:
                for key, _ in self._selector.select(timeout=POLL_S):
                    key.data()
                self._look()
        finally:
            self._end_ranks()
            self._tell_all()
            self._channel.send("ended")

    # --- what the launcher says -----------------------------------------------------------------

    def _listen(self) -> None:
        for message in self._channel.received():
            self._heard = time.monotonic()
            handle: Callable[[Message], None] = getattr(self, f"_on_{message['kind']}")
            try:
                handle(message)
            except GnndistError as error:
                self._channel.send("problem", message=str(error))
        if self._channel.ended:
            self._ending = True

    def _on_job(self, job: Message) -> None:
        """What there is to do; answers what this host has."""
        self._job = job
        with suppress(OSError):
            os.chdir(job["folder"])
        here = inventory()
        problem = problem_with(job)
        if job["first"] == 0 and problem is None:
            self._meeting = Meeting(job["port"], job["token"])
            self._selector.register(
                self._meeting.socket, selectors.EVENT_READ, self._meeting.answer
            )
            here |= {"port": self._meeting.port}
        self._channel.send("here", **here, problem=problem)

    def _on_probe(self, message: Message) -> None:
        """Which of the first host's addresses can be reached from here."""

        def attempt(address: str) -> str:
            try:
                self._sources[address] = reach(address, message["port"], self._job["token"])
            except OSError as error:
                return str(error.strerror or error)
            return ""

        with ThreadPoolExecutor() as pool:
            results = pool.map(attempt, message["addresses"])
        self._channel.send("reached", results=dict(zip(message["addresses"], results, strict=True)))

    def _on_go(self, message: Message) -> None:
        """Start the ranks."""
        job, address = self._job, message["address"]
        count, first = job["count"], job["first"]
        self._board = Board(self._folder / BOARD_FILE, job["ranks"])
        if job["run"] is not None:
            (self._folder / RUN_FILE).write_text(job["run"]["config"])
        environment = {
            **worker_environment(count),
            **job["environment"],
            **launched_by_this(self._folder),
            "WORLD_SIZE": str(job["ranks"]),
            "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(message["port"]),
        }
        if job["ranks"] > count:
            self._set_interface(environment, address)
        if self._meeting is not None:
            self._selector.unregister(self._meeting.socket)
        self._take_output(job["terminal"], environment)
        for local in range(count):
            rank = first + local
            place = {"RANK": str(rank), "LOCAL_RANK": str(local)}
            if rank == 0 and self._meeting is not None:
                place[PORT_SOCKET] = str(self._meeting.socket.fileno())
            log = self._folder / f"rank-{rank}.log"
            started = self._start(job["arguments"], environment | place, log)
            self._ranks[rank] = LocalRank(started)
        if self._meeting is not None:
            self._meeting.socket.close()

    def _on_signal(self, message: Message) -> None:
        rank = self._ranks.get(message["rank"])
        if rank is not None and message["number"] == signal.SIGKILL:
            rank.end()
        elif rank is not None:
            rank.signal(message["number"])

    def _on_alive(self, message: Message) -> None:
        pass

    def _on_end(self, message: Message) -> None:
        self._ending = True

    def _set_interface(self, environment: dict[str, str], address: str) -> None:
        """Where gloo binds: what the environment names, else the way to the first host."""
        named = self._job["environment"].get(INTERFACE) or os.environ.get(INTERFACE)
        if named:
            check_interface(named, several_hosts=True)
            return
        environment.pop(INTERFACE, None)
        used = self._sources if self._meeting is None else self._meeting.interfaces
        if used.get(address):
            environment[INTERFACE] = used[address]

    def _take_output(self, terminal: Any, environment: dict[str, str]) -> None:
        """What rank 0 prints goes to the launcher: its standard output is this process's."""
        if self._job["first"] != 0:
            return
        if terminal is None:
            output, inner = os.pipe()
        else:
            import termios

            output, inner = os.openpty()
            termios.tcsetwinsize(inner, (terminal["lines"], terminal["columns"]))
            environment["TERM"] = terminal["term"]
        os.dup2(inner, 1)
        os.close(inner)
        os.set_blocking(output, False)
        self._output = output
        self._selector.register(output, selectors.EVENT_READ, self._tell_output)

    # --- what the ranks do ----------------------------------------------------------------------

    def _look(self) -> None:
        """Tell what has changed since the last look."""
        now = time.monotonic()
        if now - self._heard > ORPHANED_S:
            self._ending = True
        self._tell_board()
        self._tell_logs()
        for number, rank in self._ranks.items():
            code = None if number in self._exited else rank.poll()
            if code is not None:
                self._exited.add(number)
                self._tell_all()
                note = read_note(self._folder, number)
                self._channel.send("exit", rank=number, code=code, note=note)
        if now - self._spoke > ALIVE_S:
            self._spoke = now
            running = [n for n in self._ranks if n not in self._exited]
            suspended = [n for n in running if self._ranks[n].is_suspended()]
            self._channel.send("alive", suspended=suspended)

    def _tell_board(self) -> None:
        if self._board is not None:
            slots = self._board.slots(self._job["first"], self._job["count"])
            if slots != self._slots:
                self._slots = slots
                self._channel.send("board", slots=packed(slots))

    def _tell_logs(self) -> None:
        for rank in self._ranks:
            with suppress(OSError), (self._folder / f"rank-{rank}.log").open("rb") as log:
                log.seek(self._read.get(rank, 0))
                if text := log.read(1 << 18):
                    self._read[rank] = self._read.get(rank, 0) + len(text)
                    self._channel.send("log", rank=rank, text=packed(text))

    def _end_ranks(self) -> None:
        """Kill the ranks that still run, and see them gone."""
        running = [rank for number, rank in self._ranks.items() if number not in self._exited]
        for rank in running:
            rank.end()
        deadline = time.monotonic() + END_S
        while any(rank.poll() is None for rank in running) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _tell_output(self) -> None:
        while self._output is not None:
            try:
                self._channel.send("out", text=packed(os.read(self._output, 1 << 16)))
            except OSError:  # nothing more at the moment
                return

    def _tell_all(self) -> None:
        self._tell_output()
        self._tell_board()
        self._tell_logs()


def main(reader: int = 0, writer: int = 1, start: Start = start_process) -> None:
    """Serve the launcher at the other end of two pipes."""
    # The ranks' standard output must not mix with the messages.
    channel = os.dup(writer)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="gnndist-", ignore_cleanup_errors=True) as folder:
        Agent(reader, channel, Path(folder), start).run()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher says when to stop
    main()
    sys.exit(0)
