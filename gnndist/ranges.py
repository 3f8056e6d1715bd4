"""Ranges that a profile tells apart, and functions marked with them.

A mark costs 0.1 µs while nothing profiles. `gnndist train --profile` turns the marked ranges into
the parts of an epoch (`gnndist.training.breakdown`).
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch.profiler import record_function

F = TypeVar("F", bound=Callable[..., Any])

SPARSE = "gnndist.sparse"
"""products with the graph's matrices, and what else reads neighbours' rows"""
ELEMENTWISE = "gnndist.elementwise"
"""bias, activation, dropout"""
POST = "gnndist.exchange.post"
"""handing an exchange's messages to the transport"""
WAIT = "gnndist.exchange.wait"
"""blocked until an exchange has arrived"""
REDUCE = "gnndist.reduce"
"""summing over ranks: the gradients, the loss, batch norms' statistics"""
EPOCH = "gnndist.epoch"
"""one training step; followed by the epoch's number"""


def ranged(name: str) -> Callable[[F], F]:
    """Mark a function's calls as a range of this name."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            if not torch._C._autograd._profiler_enabled():
                return function(*args, **kwargs)
            with record_function(name):
                return function(*args, **kwargs)

        return cast(F, marked)

    return decorate
