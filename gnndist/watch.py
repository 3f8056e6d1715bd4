"""Communication that says when it waits, and that names its failures."""

import re
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from torch import Tensor

from gnndist.comm import Comm, Meter, Pending, Reduction
from gnndist.failures import PeerLost
from gnndist.status import Status


class WatchedComm:
    """A `Comm` that notes on a `Status` while it waits, and raises `PeerLost` where it fails."""

    def __init__(self, comm: Comm, status: Status) -> None:
        self._comm = comm
        self._status = status

    @property
    def rank(self) -> int:
        return self._comm.rank

    @property
    def world(self) -> int:
        return self._comm.world

    @property
    def meter(self) -> Meter:
        return self._comm.meter

    def start(self, sends: Sequence[Tensor], receives: Sequence[Tensor]) -> Pending:
        with talking(self._status):
            return _Watched(self._comm.start(sends, receives), self._status)

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        with talking(self._status):
            self._comm.all_reduce(tensor, op)

    def all_gather(self, value: Any) -> list[Any]:
        with talking(self._status):
            return self._comm.all_gather(value)

    def swap(self, values: Sequence[Any]) -> list[Any]:
        with talking(self._status):
            return self._comm.swap(values)


class _Watched:
    def __init__(self, pending: Pending, status: Status) -> None:
        self._pending = pending
        self._status = status

    def wait(self) -> None:
        with talking(self._status):
            self._pending.wait()


class talking:
    """Note that this rank waits for others meanwhile; what goes wrong then is theirs."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def __enter__(self) -> None:
        self._status.begin_wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._status.end_wait(failed=error is not None)
        if isinstance(error, RuntimeError):
            raise PeerLost(f"lost contact with the other ranks: {_plain(error)}") from error


def _plain(error: RuntimeError) -> str:
    """What the transport says, without where in its source it says so and what to make of it."""
    said = str(error).partition(" This is typically")[0]
    return re.sub(r"^\[\S+:\d+\] ", "", said)
