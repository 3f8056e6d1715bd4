"""Tensors of a GPU carried by a transport of the host: gloo, where ranks share a GPU."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gnndist.comm import Comm, Meter, Pending, Reduction
from gnndist.device import is_gpu, pinned


class StagedComm:
    """A `Comm` for tensors on a GPU, copied through pinned memory of the host.

    `start` returns once the messages have left the GPU, which a copy from pinned memory does at
    the bus's full speed; their way to the other ranks is then beside the GPU's work.
    """

    def __init__(self, comm: Comm) -> None:
        self._comm = comm

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
        out = [_staged(tensor, filled=True) for tensor in sends]
        landing = [_staged(tensor, filled=False) for tensor in receives]
        return _Landing(self._comm.start(out, landing), landing, receives)

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        on_host = _staged(tensor, filled=True)
        self._comm.all_reduce(on_host, op)
        if on_host is not tensor:
            tensor.copy_(on_host)

    def all_gather(self, value: Any) -> list[Any]:
        return self._comm.all_gather(value)

    def swap(self, values: Sequence[Any]) -> list[Any]:
        return self._comm.swap(values)


class _Landing:
    """Messages on their way, first to the host's memory."""

    def __init__(
        self, pending: Pending, landing: Sequence[Tensor], receives: Sequence[Tensor]
    ) -> None:
        self._pending = pending
        self._landing = landing
        self._receives = receives

    def wait(self) -> None:
        self._pending.wait()
        for tensor, landed in zip(self._receives, self._landing, strict=True):
            if landed is not tensor and tensor.numel():
                tensor.copy_(landed)
        self._landing, self._receives = (), ()


def _staged(tensor: Tensor, *, filled: bool) -> Tensor:
    """The host's copy of a tensor on a GPU (or memory for one); itself if it is on the host."""
    if not is_gpu(tensor.device):
        return tensor
    on_host = pinned(tuple(tensor.shape), tensor.dtype)
    return on_host.copy_(tensor) if filled else on_host
