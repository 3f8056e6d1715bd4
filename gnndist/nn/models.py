"""A model by its name: one of the zoo, or the user's own."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from gnndist.errors import ConfigError
from gnndist.nn.stack import Stack
from gnndist.nn.zoo import MODELS

__all__ = ["MODELS", "Stack", "build_model"]


def build_model(
    name: str, in_channels: int, out_channels: int, options: Mapping[str, Any]
) -> nn.Module:
    """The model of that name.

    Parameters
    ----------
    name:
        a name in `MODELS`, or ``package.module:Class`` for a class (or function) that takes
        (in_channels, out_channels) and whichever of the options it names as keywords.
    options:
        option → (value, its default). A value that differs from its default must be one the
        model takes; None leaves it to the model's own default.

    Raises
    ------
    ConfigError
        for an unknown model, an option it does not have, or values it refuses.
    """
    make = _imported(name) if ":" in name else MODELS.get(name)
    if make is None:
        raise ConfigError(
            f"model {name!r}: allowed are {', '.join(MODELS)}, or package.module:Class"
        )
    taken = inspect.signature(make).parameters
    every = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken.values())
    given = {}
    for option, (value, default) in options.items():
        if value is None:
            continue
        if option in taken or every:
            given[option] = value
        elif value != default:
            has = ", ".join(option for option in options if option in taken)
            raise ConfigError(
                f"{option} = {value!r}: model {name} has no such option; it has {has}"
            )
    try:
        return make(in_channels, out_channels, **given)
    except ValueError as error:
        raise ConfigError(f"model {name}: {error}") from error


def _imported(name: str) -> Callable[..., nn.Module]:
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        made = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"model {name!r} does not import: {error}") from error
    if not callable(made):
        raise ConfigError(f"model {name!r}: allowed is a class or function")
    return made  # type: ignore[no-any-return]
