"""Command-line options made from a config's fields."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

import click

from gnndist.training.options import Option, base_type

F = TypeVar("F", bound=Callable[..., Any])


def config_options(config: type) -> Callable[[F], F]:
    """Give a command one option a field of `config`; those not given are None."""

    def decorate(command: F) -> F:
        hints = get_type_hints(config)
        for item in reversed(fields(config)):
            limits: Option = item.metadata["option"]
            kind, _ = base_type(hints[item.name])
            flag = item.name.replace("_", "-")
            name = f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"
            command = click.option(
                name,
                item.name,
                type=click.Choice(limits.allowed) if limits.allowed else kind,
                default=None,
                help=limits.help + _default(item.default),
            )(command)
        return command

    return decorate


def _default(value: Any) -> str:
    """What help says of a default; of a switch that is off it says nothing."""
    if isinstance(value, bool):
        return "  [on]" if value else ""
    return f"  [{value}]"


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the command line names."""
    return {name: value for name, value in options.items() if value is not None}
