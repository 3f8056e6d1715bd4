"""What a launcher and its agents say to each other: a JSON object a line, over two pipes.

launcher → agent    job (what to run), probe (can you reach these addresses?), go (start the
                    ranks), signal, end, alive
agent → launcher    here (who I am and what I have), reached, board, log, out, exit, suspended,
                    alive, ended

A remote shell may print lines of its own (a greeting): those do not begin with `MARK`.
"""

import base64
import json
import os
from contextlib import suppress
from typing import Any

MARK = b"gnndist:"
ALIVE_S = 2.0
"""how often both sides send something"""
SILENT_S = 20.0
"""how long a launcher waits for a sign of life"""
ORPHANED_S = 60.0
"""how long an agent waits for one"""

Message = dict[str, Any]


class Channel:
    """One end of the conversation."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader = reader
        self._writer = writer
        self._rest = b""
        self.noise: list[str] = []
        """the last lines that were no messages"""
        self.ended = False
        """the other side has gone"""
        os.set_blocking(reader, False)

    def send(self, kind: str, **content: Any) -> None:
        """Say something, if the other side is there to hear it."""
        line = MARK + json.dumps({"kind": kind, **content}).encode() + b"\n"
        with suppress(BrokenPipeError, OSError):
            while line:
                line = line[os.write(self._writer, line) :]

    def received(self) -> list[Message]:
        """What has come since the last call; does not wait."""
        while not self.ended:
            try:
                block = os.read(self.reader, 1 << 16)
            except BlockingIOError:
                break
            except OSError:
                block = b""
            self.ended = not block
            self._rest += block
        *lines, self._rest = self._rest.split(b"\n")
        return [message for line in lines if (message := self._message(line)) is not None]

    def _message(self, line: bytes) -> Message | None:
        _, mark, text = line.partition(MARK)
        if mark:
            with suppress(ValueError):
                message: Message = json.loads(text)
                return message
        self.noise = [*self.noise[-9:], line.decode(errors="replace").strip()]
        return None


def packed(content: bytes) -> str:
    """Bytes as JSON takes them."""
    return base64.b64encode(content).decode()


def unpacked(text: str) -> bytes:
    return base64.b64decode(text)
