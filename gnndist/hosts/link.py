"""The launcher's end of the conversation with one host's agent."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from gnndist.hosts.messages import ALIVE_S, SILENT_S, Channel, Message


class Shell(Protocol):
    """A remote shell that runs an agent."""

    def poll(self) -> int | None: ...
    def kill(self) -> None: ...


Connect = Callable[[Sequence[str], int, int, int], Shell]
"""(command, standard input, output, error) → the process that has these file descriptors"""


def run_shell(command: Sequence[str], stdin: int, stdout: int, stderr: int) -> Shell:
    """A remote shell of its own session: Ctrl-C is for the launcher, which tells the ranks."""
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )


class Link:
    """One host, from its remote shell's start to its end."""

    def __init__(self, name: str, command: Sequence[str], connect: Connect) -> None:
        self.name = name
        self._command = command
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        self._errors, errors_write = os.pipe()
        os.set_blocking(self._errors, False)
        os.set_inheritable(to_write, False)
        self._channel = Channel(from_read, to_write)
        self._open = [to_write, from_read, self._errors]
        try:
            self._shell = connect(command, to_read, from_write, errors_write)
        finally:
            for descriptor in (to_read, from_write, errors_write):
                os.close(descriptor)
        self._said = ""
        self._lost: str | None = None
        self.heard = self._spoke = time.monotonic()
        self.ended = False
        """the agent has said that it ends"""

    def send(self, kind: str, **content: Any) -> None:
        self._channel.send(kind, **content)

    def received(self) -> list[Message]:
        """What the agent has said since the last call."""
        messages = self._channel.received()
        now = time.monotonic()
        if messages:
            self.heard = now
            self.ended = self.ended or messages[-1]["kind"] == "ended"
        if now - self._spoke > ALIVE_S:
            self._spoke = now
            self.send("alive")
        self._read_errors()
        return messages

    def _read_errors(self) -> None:
        with suppress(OSError):  # nothing more at the moment
            while block := os.read(self._errors, 1 << 16):
                self._said = (self._said + block.decode(errors="replace"))[-4000:]

    @property
    def quiet_s(self) -> float:
        """Seconds since the agent was last heard of."""
        return time.monotonic() - self.heard

    def lost(self) -> str | None:
        """Why the host is lost, if it is."""
        if self._lost is None and not self.ended:
            if self._channel.ended:
                self._lost = self._how_it_ended()
            elif self.quiet_s > SILENT_S:
                self._lost = f"no sign of life for {self.quiet_s:.0f} s"
        return self._lost

    def close(self) -> None:
        """Let go of it; an agent that is still there ends its ranks when it notices."""
        if self._open:
            if self._shell.poll() is None:
                self._shell.kill()
            for descriptor in self._open:
                os.close(descriptor)
            self._open = []

    def _how_it_ended(self) -> str:
        deadline = time.monotonic() + 1  # its exit code comes a little after its last words
        while self._shell.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        self._read_errors()
        code, said = self._shell.poll(), self._last_words()
        how = "was cut" if code is None else f"ended with code {code}"
        return f"the connection by `{self._shown}` {how}{': ' + said if said else ''}"

    @property
    def _shown(self) -> str:
        """The command, without what it runs there."""
        return " ".join(self._command[:-1])

    def _last_words(self) -> str:
        lines = [*self._channel.noise, *self._said.splitlines()]
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
