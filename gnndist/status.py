"""Where every rank stands, readable by the process that started it even when the rank is gone.

A board is a small file that is mapped into memory: a rank writes its slot as it goes (a
microsecond each time), the launcher reads all slots. A rank without a board keeps its slot to
itself.
"""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnndist.failures import BOARD

PHASES = (
    "start",
    "load",
    "plan",
    "forward",
    "backward",
    "update",
    "evaluate",
    "checkpoint",
    "results",
)

_NUMBER = {phase: number for number, phase in enumerate(PHASES)}
_SLOT = np.dtype(
    [
        ("phase", np.int32),
        ("epoch", np.int32),
        ("waiting", np.int32),
        ("ticks", np.int64),
    ]
)


class Status:
    """One rank's slot: its phase, epoch, whether it waits for others, and a count of its steps."""

    def __init__(self, slot: NDArray[Any] | None = None) -> None:
        slot = np.zeros(1, _SLOT) if slot is None else slot
        # A view of each field: writing to one takes a fraction of a microsecond.
        self._phase, self._epoch, self._waiting, self._ticks = (
            np.asarray(slot[name]) for name in ("phase", "epoch", "waiting", "ticks")
        )

    @classmethod
    def on(cls, board: Path, rank: int) -> "Status":
        """Rank `rank`'s slot of a board."""
        return cls(np.memmap(board, _SLOT, mode="r+")[rank : rank + 1])

    def enter(self, phase: str, epoch: int | None = None) -> None:
        """Say that `phase` begins; the epoch stays as it was unless given."""
        self._phase[0] = _NUMBER[phase]
        if epoch is not None:
            self._epoch[0] = epoch
        self._ticks[0] += 1

    def begin_wait(self) -> None:
        """Say that this rank waits for others."""
        self._waiting[0] = 1

    def end_wait(self, *, failed: bool) -> None:
        """Say that it waits no more; a failure leaves it said that it waited."""
        self._waiting[0] = failed
        self._ticks[0] += 1

    @property
    def phase(self) -> str:
        return PHASES[int(self._phase[0])]

    @property
    def epoch(self) -> int:
        """0 before the first."""
        return int(self._epoch[0])

    @property
    def waits(self) -> bool:
        """Whether it waits for others (or was, when communication failed)."""
        return bool(self._waiting[0])

    @property
    def ticks(self) -> int:
        """Steps so far: of two ranks in the same program, the one behind has fewer."""
        return int(self._ticks[0])

    def __str__(self) -> str:
        where = f"epoch {self.epoch}, {self.phase}" if self.epoch else self.phase
        return f"{where}, in an exchange" if self.waits else where


class Board:
    """All ranks' slots, as the launcher sees them."""

    def __init__(self, path: Path, ranks: int) -> None:
        # Written in full, so that no rank can find the disk full at a later write.
        path.write_bytes(bytes(_SLOT.itemsize * ranks))
        self.path = path
        self._bytes = np.memmap(path, np.uint8, mode="r+")
        self.ranks = [Status.on(path, rank) for rank in range(ranks)]
        self._ticks = [0] * ranks
        self._since = [time.monotonic()] * ranks
        self._epoch, self._epoch_since = 0, time.monotonic()
        self.longest_epoch_s = 0.0
        """the longest epoch so far, evaluation and checkpoint included; 0 before the second"""

    def slots(self, first: int, count: int) -> bytes:
        """The slots of some ranks, as another host's board takes them."""
        return bytes(self._bytes[first * _SLOT.itemsize : (first + count) * _SLOT.itemsize])

    def put_slots(self, first: int, slots: bytes) -> None:
        """Take over slots of another host's board."""
        start = first * _SLOT.itemsize
        self._bytes[start : start + len(slots)] = np.frombuffer(slots, np.uint8)

    def look(self) -> None:
        """Take note of what has moved since the last look."""
        now = time.monotonic()
        for rank, status in enumerate(self.ranks):
            if status.ticks != self._ticks[rank]:
                self._ticks[rank], self._since[rank] = status.ticks, now
        epoch = max(status.epoch for status in self.ranks)
        if epoch != self._epoch:
            if epoch < self._epoch:  # the next seed's run
                self.longest_epoch_s = 0.0
            elif self._epoch > 0:
                self.longest_epoch_s = max(self.longest_epoch_s, now - self._epoch_since)
            self._epoch, self._epoch_since = epoch, now

    def still_s(self) -> float:
        """Seconds since any rank last moved."""
        return time.monotonic() - max(self._since)

    def behind(self) -> int:
        """The rank that the others wait for: of those that do not wait, the least advanced."""
        free = [rank for rank, status in enumerate(self.ranks) if not status.waits]
        return min(free or range(len(self.ranks)), key=lambda rank: self.ranks[rank].ticks)


def own_board() -> Path | None:
    """The board that a launcher has given this process."""
    folder = os.environ.get(BOARD)
    return Path(folder) / BOARD_FILE if folder else None


BOARD_FILE = "board"
