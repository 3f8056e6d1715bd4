"""Checks of what a layer is constructed with: a ValueError names the value and what is allowed."""

import math
from typing import TypeVar

from torch import nn

T = TypeVar("T")


def at_least(least: int, **values: int) -> None:
    """Each of `values` is an integer of at least `least`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} = {value!r}: allowed are integers from {least}")


def probability(**values: float) -> None:
    """Each of `values` lies in 0 … 1."""
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} = {value!r}: allowed are 0 to 1")


def finite(**values: float) -> None:
    """Each of `values` is a finite number."""
    for name, value in values.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise ValueError(f"{name} = {value!r}: allowed are finite numbers")


def one_of(allowed: tuple[T, ...], **values: T) -> None:
    """Each of `values` is one of `allowed`."""
    for name, value in values.items():
        if value not in allowed:
            raise ValueError(f"{name} = {value!r}: allowed are {', '.join(map(str, allowed))}")


def rank_free(module: nn.Module, name: str) -> None:
    """Nothing in `module` looks at other rows, or draws numbers, on this rank alone."""
    for path, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm | nn.modules.dropout._DropoutNd):
            kind = type(part).__name__
            raise ValueError(
                f"{name}{'.' if path else ''}{path} is torch.nn.{kind}, which would see this "
                "rank's rows alone: use gnndist.nn.BatchNorm and gnndist.nn.Dropout in a "
                "gnndist.nn.Sequential"
            )
