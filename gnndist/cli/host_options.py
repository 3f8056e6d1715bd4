"""Options of verbs whose ranks may run on several hosts."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gnndist.errors import ConfigError
from gnndist.hosts import Hosts

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = (
    click.option("--hosts", metavar="A,B,…", help="machines to run on, by ssh  [this one]"),
    click.option("--ranks-per-host", type=click.IntRange(min=1), help="on each of --hosts  [1]"),
    click.option("--remote-shell", metavar="COMMAND", help="what reaches a host  [ssh …]"),
    click.option("--remote-python", metavar="PATH", help="the interpreter there  [the same path]"),
    click.option(
        "--port", type=click.IntRange(0, 65535), help="of the first host, where ranks meet  [any]"
    ),
)


def host_options(command: F) -> F:
    """Give a verb the options that say where its ranks run."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def hosts_from(
    ranks: int | None,
    hosts: str | None,
    ranks_per_host: int | None,
    **reached: Any,
) -> Hosts | None:
    """The hosts that the options name, if they do.

    Raises
    ------
    ConfigError
        options that contradict each other.
    """
    if hosts is None:
        given = {"ranks_per_host": ranks_per_host, **reached}
        for name, value in given.items():
            if value is not None:
                raise ConfigError(f"--{name.replace('_', '-')} {value}: only with --hosts")
        return None
    chosen = Hosts.parse(hosts, ranks_per_host=ranks_per_host, **reached)
    if ranks is not None and ranks != chosen.ranks:
        raise ConfigError(
            f"--ranks {ranks}, but {len(chosen.names)} hosts × {chosen.ranks_per_host} "
            f"--ranks-per-host are {chosen.ranks}: give one of the two"
        )
    return chosen
