"""One halo communication: rows of a buffer to the ranks that wait for them.

The plan of an exchange is data (how many messages go to and come from each rank); `Exchange.start`
is the one function that moves it. Reversed, the same exchange carries gradients back.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gnndist.buffers import BufferPool
from gnndist.comm import Comm, Pending


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Who sends how many messages to whom."""

    comm: Comm
    send_counts: tuple[int, ...]
    """messages to each rank; the sent buffer's rows are ordered by receiving rank"""
    receive_counts: tuple[int, ...]
    """messages from each rank; the received buffer's rows are ordered by sending rank"""
    overlap: bool = True
    """do other work meanwhile; otherwise `start` returns when everything has arrived"""

    @property
    def num_sent(self) -> int:
        return sum(self.send_counts)

    @property
    def num_received(self) -> int:
        return sum(self.receive_counts)

    def reversed(self) -> "Exchange":
        """What was received goes back to where it came from."""
        return replace(self, send_counts=self.receive_counts, receive_counts=self.send_counts)

    def start(self, messages: Tensor, buffers: BufferPool) -> "Transfer":
        """Begin to move `messages`, [num_sent, …] contiguous; other work can be done meanwhile."""
        shape = (self.num_received, *messages.shape[1:])
        received = buffers.empty(shape, messages.dtype, messages.device)
        pending = self.comm.start(
            torch.split(messages, list(self.send_counts)),
            torch.split(received, list(self.receive_counts)),
        )
        transfer = Transfer(pending, received)
        if not self.overlap:
            transfer.wait()
        return transfer


class Transfer:
    """An exchange in flight."""

    def __init__(self, pending: Pending, received: Tensor) -> None:
        self._pending = pending
        self._received = received

    def wait(self) -> Tensor:
        """The received messages, [num_received, …], once all have arrived."""
        self._pending.wait()
        return self._received
