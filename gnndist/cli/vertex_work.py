"""`--vertex-work N|measured` and the options that say for which model it is measured."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gnndist.cli.partition_output import say
from gnndist.errors import ConfigError

if TYPE_CHECKING:
    from gnndist.graph import Graph
    from gnndist.training.config import TrainConfig

F = TypeVar("F", bound=Callable[..., Any])
MEASURED = "measured"
MODEL = ("model", "layers", "hidden")


def vertex_work_options(command: F) -> F:
    """Give a command --vertex-work and the model that it may be measured for."""
    for option in reversed(
        (
            click.option(
                "--vertex-work",
                metavar="N",
                help="of a vertex, in edges, or: measured  [1]",
            ),
            click.option("--model", metavar="MODEL", help="for which it is measured  [gcn]"),
            click.option("--layers", type=int, metavar="N", help="of that model  [2]"),
            click.option("--hidden", type=int, metavar="N", help="width of that model  [256]"),
            click.option(
                "--config",
                "files",
                type=click.Path(path_type=Path),
                multiple=True,
                metavar="FILE",
                help="that model's options, as for `gnndist train`",
            ),
        )
    ):
        command = option(command)
    return command


@dataclass(frozen=True, kw_only=True)
class WorkChoice:
    """What the command line says of the work of a vertex."""

    given: int | None
    measured_for: "TrainConfig | None"

    def of(self, graph: "Graph", **options: Any) -> dict[str, int]:
        """`vertex_work` as `write_store` takes it, measured for a graph and told if it is to be.

        The other options are those of `gnndist.inspection.measured_work.measure_work`.
        """
        config = self.measured_for
        if config is None:
            return {} if self.given is None else {"vertex_work": self.given}
        from gnndist.inspection.measured_work import measure_work

        work = measure_work(graph, config, **options)
        edges = "1 edge" if work.vertex_work == 1 else f"{work.vertex_work:,} edges"
        say(
            f"a vertex costs as much as {edges} on this machine ({config.model}, "
            f"{config.layers} layers, {config.hidden} wide): --vertex-work {work.vertex_work}"
        )
        return {"vertex_work": work.vertex_work}


def work_choice(options: dict[str, Any]) -> WorkChoice:
    """Take the options of `vertex_work_options` out of all options.

    Raises
    ------
    ConfigError
        a model where nothing is measured, or a value that it does not allow.
    """
    work, files = options.pop("vertex_work"), options.pop("files")
    model = {name: value for name in MODEL if (value := options.pop(name)) is not None}
    if work == MEASURED:
        from gnndist.training.config_files import combined

        return WorkChoice(given=None, measured_for=combined(files, model))
    named = [*model, *(["config"] if files else [])]
    if named:
        raise ConfigError(f"--{named[0]} needs --vertex-work {MEASURED}, and nothing else uses it")
    return WorkChoice(given=None if work is None else _number(work), measured_for=None)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(
            f"--vertex-work {text!r}: allowed are numbers of edges from 0, and {MEASURED}"
        ) from None
