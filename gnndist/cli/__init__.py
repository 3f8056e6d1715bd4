"""The command line: `gnndist VERB …`. Each verb is a thin module here, loaded when called."""

import importlib
import os
import sys
from typing import NoReturn

import click

from gnndist import __version__
from gnndist.errors import INTERRUPTED, USER_MISTAKE, GnndistError, JobFailed, JobStopped
from gnndist.failures import as_rank, is_worker

VERBS = {
    "partition": "Turn a graph into a store that any number of ranks can train from.",
    "pack": "Divide a store by host, where hosts share no file system.",
    "inspect": "Predict balance, traffic, memory and epoch time for numbers of ranks.",
    "train": "Train a model from a store on any number of ranks.",
    "slurm": "Print a batch script that trains under SLURM.",
    "evaluate": "Recompute a run's metrics from its saved model.",
    "predict": "Write a run's predictions in the original order.",
    "report": "Write an HTML page about one run or several.",
    "runs": "List the runs in a folder with their figures.",
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
    """Run the command line. Whatever goes wrong is one line on standard error; `gnndist.errors`
    says which exit code means what.
    """
    try:
        with as_rank():
            cli.main(standalone_mode=False)
    except JobStopped as stopped:
        _end(f"gnndist: {stopped}", stopped.code)
    except JobFailed as failure:
        _end(f"gnndist: error: {failure}", failure.code)
    except GnndistError as error:
        _end(f"gnndist: error: {error}", USER_MISTAKE)
    except click.ClickException as error:
        _end(f"gnndist: error: {_one_line(error)}", USER_MISTAKE)
    except click.Abort:
        _end("gnndist: interrupted", INTERRUPTED)
    if is_worker():
        # A rank that is done leaves at once: gloo's threads may abort an interpreter that winds up.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _one_line(error: click.ClickException) -> str:
    """Without the usage: the message names the value and what is allowed."""
    said = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{said} ({context.command_path} --help says more)" if context else said


def _end(line: str, code: int) -> NoReturn:
    if sys.stdout.isatty():
        click.echo("\x1b[?25h", nl=False)  # a rank that was killed may have hidden the cursor
    click.echo(line, err=True)
    sys.exit(code)
