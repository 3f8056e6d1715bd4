"""The command line: `gnndist VERB …`. Each verb is a thin module here, loaded when called."""

import importlib
import sys

import click

from gnndist import __version__
from gnndist.errors import GnndistError

VERBS = {
    "partition": "Turn a graph into a store that any number of ranks can train from.",
    "train": "Train a model from a store on any number of ranks.",
    "evaluate": "Recompute a run's metrics from its saved model.",
    "predict": "Write a run's predictions in the original order.",
}


class Verbs(click.Group):
    """Loads a verb's module only when it is named, so that `--help` answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"gnndist.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gnndist")
def cli() -> None:
    """Exact full-graph training of graph neural networks on any number of ranks.

    \b
    Example:
      gnndist partition digits --out stores/digits
      gnndist train stores/digits --ranks 2 --out runs/digits
      gnndist evaluate runs/digits
    """


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        click.echo("gnndist: interrupted", err=True)
        sys.exit(130)
    except GnndistError as error:
        click.echo(f"gnndist: error: {error}", err=True)
        sys.exit(2)
