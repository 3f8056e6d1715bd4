"""`gnndist report`: one HTML page about one run or several."""

from pathlib import Path

import click

from gnndist.cli.console import say
from gnndist.errors import RunError
from gnndist.report.page import report
from gnndist.units import size


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="the .html to write")
@click.option("--overwrite", is_flag=True, help="replace the file in --out")
def command(runs: tuple[Path, ...], out: Path, overwrite: bool) -> None:
    """Write one self-contained HTML page about RUNS: curves, times, traffic, config, machines.

    \b
    Example:
      gnndist report runs/digits --out digits.html
      gnndist report runs/gcn runs/sage --out compared.html
    Of several runs the curves are overlaid and the options that differ are marked. The page needs
    no network and no other file.
    """
    if out.is_dir():
        raise RunError(f"{out} is a directory: --out needs a file, such as {out / 'report.html'}")
    if out.exists() and not overwrite:
        raise RunError(f"{out} exists: choose another --out, or add --overwrite")
    if not out.absolute().parent.is_dir():
        raise RunError(f"{out.parent} is not a directory: --out needs one that exists")
    shown = report(runs, out)
    what = f"{len(shown)} runs" if len(shown) > 1 else "1 run"
    say(f"wrote a report on {what} to {out} ({size(out.stat().st_size)})")
