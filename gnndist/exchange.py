"""One halo communication: rows of a buffer to the ranks that wait for them.

The plan of an exchange is data (how many messages go to and come from each rank); `Exchange.start`
is the one function that moves it. Reversed, the same exchange carries gradients back.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gnndist.comm import Comm, Pending


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Who sends how many messages to whom."""

    comm: Comm
    send_counts: tuple[int, ...]
    """messages to each rank; the sent buffer's rows are ordered by receiving rank"""
    receive_counts: tuple[int, ...]
    """messages from each rank; the received buffer's rows are ordered by sending rank"""

    @property
    def num_sent(self) -> int:
        return sum(self.send_counts)

    @property
    def num_received(self) -> int:
        return sum(self.receive_counts)

    def reversed(self) -> "Exchange":
        """What was received goes back to where it came from."""
        return Exchange(
            comm=self.comm, send_counts=self.receive_counts, receive_counts=self.send_counts
        )

    def start(self, messages: Tensor) -> "Transfer":
        """Begin to move `messages`, [num_sent, …] contiguous; other work can be done meanwhile."""
        received = messages.new_empty((self.num_received, *messages.shape[1:]))
        pending = self.comm.start(
            torch.split(messages, list(self.send_counts)),
            torch.split(received, list(self.receive_counts)),
        )
        return Transfer(pending, received)


class Transfer:
    """An exchange in flight."""

    def __init__(self, pending: Pending, received: Tensor) -> None:
        self._pending = pending
        self._received = received

    def wait(self) -> Tensor:
        """The received messages, [num_received, …], once all have arrived."""
        self._pending.wait()
        return self._received
