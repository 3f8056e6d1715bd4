"""The ranks of a job on several hosts."""

import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnndist.crew import RankProcess
from gnndist.errors import ConfigError
from gnndist.failures import HOST, Note
from gnndist.hosts.inventory import check_agreement, uneven
from gnndist.hosts.link import Connect, Link, run_shell
from gnndist.hosts.messages import Message, unpacked
from gnndist.hosts.names import Hosts, address_part
from gnndist.hosts.pack import files_of
from gnndist.status import BOARD_FILE, Board
from gnndist.store import Store

CONNECT_S = 60.0
"""how long hosts may take to answer before any rank starts"""
QUIET_S = 5.0
"""a host that has said nothing for so long may be lost"""
LOST = 255
"""exit code of ranks whose host is gone"""


class RemoteRank:
    """A rank on another host, as its agent tells of it."""

    def __init__(self, crew: "HostsCrew", link: Link, rank: int) -> None:
        self.host = link.name
        self._crew, self._link, self._rank = crew, link, rank
        self.code: int | None = None
        self.suspended = False

    def poll(self) -> int | None:
        self._crew.listen()
        return self.code

    def signal(self, number: int) -> None:
        if self.code is None:
            self._link.send("signal", rank=self._rank, number=int(number))

    def end(self) -> None:
        self.signal(9)

    def is_suspended(self) -> bool:
        return self.suspended and self.code is None


@dataclass(eq=False, kw_only=True)
class HostsCrew:
    """Starts every host's agent, which starts its ranks, and takes in what they tell."""

    hosts: Hosts
    store: Store | None = None
    """what the ranks train from: every host's copy is checked"""
    run: Path | None = None
    """the run directory, which rank 0 must see too"""
    say: Callable[[str], None] = print
    connect_s: float = CONNECT_S
    connect: Connect = run_shell
    _links: list[Link] = field(default_factory=list)
    _ranks: list[RemoteRank] = field(default_factory=list)
    _answers: list[dict[str, Message]] = field(default_factory=list)
    """of each host, the last message of each kind"""
    _folder: Path = Path()
    _logs: Path = Path()
    _board: Board | None = None

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, logs: Path
    ) -> Sequence[RankProcess]:
        """As `Crew.start` says.

        Raises
        ------
        ConfigError
            a host cannot be reached or cannot take part; no rank has started.
        """
        self._folder, self._logs = folder, logs
        self._ranks, self._links, self._answers = [], [], []
        self._board = Board(folder / BOARD_FILE, self.hosts.ranks)
        token = secrets.token_hex(16)
        for host, name in enumerate(self.hosts.names):
            link = Link(name, self.hosts.command(host), self.connect)
            self._links.append(link)
            self._answers.append({})
            link.send("job", **self._job(host, arguments, environment, token))
        self._await("here")
        found = [answers["here"] for answers in self._answers]
        check_agreement(self.hosts.names, found, self.hosts.ranks_per_host)
        if warning := uneven(self.hosts.names, found):
            self.say(warning)
        address = self._common_address(found[0])
        for host, link in enumerate(self._links):
            self._ranks += [RemoteRank(self, link, rank) for rank in self.hosts.ranks_of(host)]
            link.send("go", address=address, port=found[0]["port"])
        return self._ranks

    def listen(self) -> None:
        """Take in what the agents have said."""
        for host, link in enumerate(self._links):
            for message in link.received():
                self._take(host, message)
            lost = link.lost()
            for rank in self.hosts.ranks_of(host) if lost and self._ranks else ():
                if self._ranks[rank].code is None:
                    self._note(rank, Note(HOST, str(lost)))
                    self._ranks[rank].code = LOST

    def expects_news(self) -> bool:
        """Whether a host is quiet: it may be why ranks of other hosts were cut off."""
        self.listen()
        return any(link.quiet_s > QUIET_S and link.lost() is None for link in self._links)

    def close(self) -> None:
        """End the agents, and take what they still have to tell."""
        for link in self._links:
            link.send("end")
        deadline = time.monotonic() + 5
        while any(not link.ended and link.lost() is None for link in self._links):
            self.listen()
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        self.listen()
        for link in self._links:
            link.close()
        self._links = []

    # --- before the ranks start -----------------------------------------------------------------

    def _job(
        self,
        host: int,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        token: str,
    ) -> dict[str, Any]:
        """What a host's agent is told of its part."""
        ranks = self.hosts.ranks_of(host)
        store = run = None
        if self.store is not None:
            files = files_of(self.store, self.hosts.ranks, ranks)
            store = {
                "path": str(self.store.path.absolute()),
                "fingerprint": self.store.fingerprint,
                "files": {name: entry.size for name, entry in files.items()},
            }
        if self.run is not None:
            config = (self.run / "config.json").read_text()
            run = {"path": str(self.run.absolute()), "config": config}
        return {
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(Path.cwd()),
            "ranks": self.hosts.ranks,
            "first": ranks.start,
            "count": len(ranks),
            "port": self.hosts.port,
            "token": token,
            "store": store,
            "run": run,
            "terminal": _terminal(),
        }

    def _await(self, kind: str, hosts: Sequence[int] | None = None) -> None:
        """Wait for a message of this kind from every host (or those given)."""
        deadline = time.monotonic() + self.connect_s
        waiting = list(range(len(self._links)) if hosts is None else hosts)
        while waiting:
            self.listen()
            waiting = [host for host in waiting if kind not in self._answers[host]]
            for host in waiting:
                name = self._links[host].name
                if problem := self._answers[host].get("problem"):
                    raise ConfigError(f"host {name}: {problem['message']}")
                if lost := self._links[host].lost():
                    raise ConfigError(f"host {name} cannot take part: {lost}")
                if time.monotonic() > deadline:
                    raise ConfigError(
                        f"host {name} has not answered for {self.connect_s:.0f} s "
                        f"(`{' '.join(self.hosts.command(host)[:-1])}`)"
                    )
            time.sleep(0.02)

    def _common_address(self, first: Message) -> str:
        """The address at which every host reaches the first one."""
        others = range(1, len(self._links))
        if not others:
            return "127.0.0.1"
        known_as = [address_part(self.hosts.names[0]), first["name"], *first["addresses"]]
        addresses: list[str] = list(dict.fromkeys(known_as))
        for host in others:
            self._links[host].send("probe", addresses=addresses, port=first["port"])
        self._await("reached", others)
        results = [self._answers[host]["reached"]["results"] for host in others]
        for address in addresses:
            if not any(result[address] for result in results):
                return address
        host, result = next(
            (host, result)
            for host, result in zip(others, results, strict=True)
            if any(result.values())
        )
        tried = ", ".join(f"{a} ({why or 'reached'})" for a, why in result.items())
        raise ConfigError(
            f"host {self.hosts.names[host]} cannot reach host {self.hosts.names[0]} on port "
            f"{first['port']}, or not at an address that all hosts reach: tried {tried}"
        )

    # --- while they run -------------------------------------------------------------------------

    def _take(self, host: int, message: Message) -> None:
        """One message of a host's agent."""
        kind = message["kind"]
        self._answers[host][kind] = message
        if kind == "board" and self._board is not None:
            self._board.put_slots(self.hosts.ranks_of(host).start, unpacked(message["slots"]))
        elif kind == "log":
            with suppress(OSError), (self._logs / f"rank-{message['rank']}.log").open("ab") as log:
                log.write(unpacked(message["text"]))
        elif kind == "out":
            sys.stdout.write(unpacked(message["text"]).decode(errors="replace"))
            sys.stdout.flush()
        elif kind == "exit":
            if message["note"] is not None:
                self._note(message["rank"], Note(*message["note"]))
            self._ranks[message["rank"]].code = message["code"]
        elif kind == "alive":
            for rank in self.hosts.ranks_of(host) if self._ranks else ():
                self._ranks[rank].suspended = rank in message["suspended"]
        elif kind == "problem" and self._ranks:
            for rank in self.hosts.ranks_of(host):
                self._note(
                    rank, Note("user", f"host {self.hosts.names[host]}: {message['message']}")
                )
                self._ranks[rank].code = 2

    def _note(self, rank: int, note: Note) -> None:
        """Leave a rank's note where the supervisor looks for it."""
        (self._folder / f"note-{rank}.json").write_text(json.dumps(note))


def _terminal() -> dict[str, Any] | None:
    """The terminal that rank 0 is to write for, if there is one."""
    if not sys.stdout.isatty():
        return None
    columns, lines = shutil.get_terminal_size()
    return {"columns": columns, "lines": lines, "term": os.environ.get("TERM", "dumb")}
