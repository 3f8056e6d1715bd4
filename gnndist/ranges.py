"""Ranges that a profile tells apart, and functions marked with them.

A mark costs 0.1 µs while nothing profiles. `gnndist train --profile` turns the marked ranges into
the parts of an epoch (`gnndist.training.breakdown`).
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch.profiler import record_function

P = ParamSpec("P")
R = TypeVar("R")

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


def ranged(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function's calls as a range of this name."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def marked(*args: P.args, **kwargs: P.kwargs) -> R:
            if not torch._C._autograd._profiler_enabled():
                return function(*args, **kwargs)
            with record_function(name):
                return function(*args, **kwargs)

        return marked

    return decorate
