"""Fields of a config: a default, what they mean and what is allowed, said once.

The command line, the TOML reader and `__post_init__` all read the same declaration.
"""

import math
import types
from dataclasses import dataclass, field, fields
from typing import Any, Union, get_args, get_origin, get_type_hints

from gnndist.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Option:
    """What is known of a config's field besides its type and default."""

    help: str
    allowed: tuple[str, ...] = ()
    """the values of a choice"""
    low: float | None = None
    """least value"""
    high: float | None = None
    """greatest value"""
    above: float | None = None
    """values must be greater than this"""
    may_change: bool = False
    """whether a resumed run may have another value"""

    def range(self) -> str:
        if self.allowed:
            return ", ".join(self.allowed)
        if self.above is not None:
            return f"more than {self.above:g}"
        if self.low is not None and self.high is not None:
            return f"{self.low} to {self.high}"
        return f"{self.low:g} and more" if self.low is not None else "any value of its type"

    def admits(self, value: Any) -> bool:
        if self.allowed:
            return value in self.allowed
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        return (
            abs(value) < math.inf
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
        )


def option(default: Any, help: str, **limits: Any) -> Any:
    """A dataclass field with its `Option`."""
    return field(default=default, metadata={"option": Option(help=help, **limits)})


def base_type(annotation: Any) -> tuple[type, bool]:
    """The type of a field and whether None is allowed: ``int | None`` gives (int, True)."""
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return kinds[0], True
    return annotation, False


def check(config: Any) -> None:
    """Check every field of a config against its type and its `Option`.

    Raises
    ------
    ConfigError
        naming the field, its value and what is allowed.
    """
    hints = get_type_hints(type(config))
    for item in fields(config):
        value = getattr(config, item.name)
        kind, optional = base_type(hints[item.name])
        if value is None and optional:
            continue
        if kind is float and type(value) is int:
            object.__setattr__(config, item.name, float(value))
        elif type(value) is not kind:
            raise ConfigError(
                f"{item.name} = {value!r}: allowed is a value of type {kind.__name__}"
            )
        limits: Option = item.metadata["option"]
        if not limits.admits(value):
            finite = "" if limits.allowed or abs(value) < math.inf else ", finite"
            raise ConfigError(f"{item.name} = {value!r}: allowed are {limits.range()}{finite}")
