"""`gnndist partition`: a graph from where it lies to a store."""

import time
from pathlib import Path
from typing import Any

import click

from gnndist.cli.partition_output import ProgressLine, say, say_estimate, say_graph, say_store
from gnndist.cli.vertex_work import vertex_work_options, work_choice
from gnndist.partitioning import METHODS

FOR_STORE = ("cells", "method", "assignment", "scratch")
NOT_FOR_LOAD = ("cells", "method", "assignment")
PATH = click.Path(path_type=Path)
METHOD_HELP = f"{', '.join(METHODS)}  [metis]"
ID_HELP = "integer or string ids in an edge list  [look]"


@click.command(short_help="Turn a graph into a store.")
@click.argument("dataset")
@click.option("--out", type=PATH, required=True, metavar="STORE", help="store to make")
@click.option("--overwrite", is_flag=True, help="replace the store in --out")
@click.option("--root", type=PATH, metavar="DIR", help="where raw files lie  [data]")
@click.option("--yes", is_flag=True, help="download without asking")
@click.option("--method", type=click.Choice(list(METHODS)), metavar="METHOD", help=METHOD_HELP)
@click.option("--cells", type=int, metavar="N", help="[from the graph's size, at most 256]")
@click.option("--seed", type=int, default=0, help="of partition and synthetic graph  [0]")
@vertex_work_options
@click.option("--assignment", type=PATH, metavar="FILE", help="your own cell by vertex, .npy")
@click.option("--symmetrize/--directed", default=None, help="add every edge's reverse, or not")
@click.option("--split", metavar="HOW", help="random | per-class:N, instead of the data's")
@click.option("--split-seed", type=int, metavar="N", help="of a split that is dealt out  [0]")
@click.option("--split-index", type=int, metavar="N", help="which, if a file has several  [0]")
@click.option("--features", type=PATH, metavar="FILE", help="for an edge list: .npy or .csv")
@click.option("--labels", type=PATH, metavar="FILE", help="for an edge list: .npy or .csv")
@click.option("--header/--no-header", default=None, help="tables begin with names  [look]")
@click.option("--id-kind", type=click.Choice(["integer", "string"]), metavar="KIND", help=ID_HELP)
@click.option("--normalize-features/--raw-features", default=None, help="rows to sum 1, or not")
@click.option("--scratch", type=PATH, metavar="DIR", help="for large temporary files  [$TMPDIR]")
def command(out: Path, overwrite: bool, seed: int, dataset: str, **options: Any) -> None:
    """Partition DATASET (a name or a path) and write it as a store.

    \b
    Examples:
      gnndist partition digits --out stores/digits
      gnndist partition cora --root ~/data/planetoid --out stores/cora
      gnndist partition edges.csv --features x.npy --labels y.csv --out stores/mine
    """
    from gnndist.data import load
    from gnndist.partitioning.assignment import read_assignment
    from gnndist.plan.summary import summarize
    from gnndist.store import check_output, write_store

    start = time.monotonic()
    check_output(out, overwrite)
    work = work_choice(options)
    given = {name: value for name, value in options.items() if value is not None}
    for_load = {name: value for name, value in given.items() if name not in NOT_FOR_LOAD}
    for_store = {name: value for name, value in given.items() if name in FOR_STORE}
    if "assignment" in for_store:
        for_store["assignment"] = read_assignment(for_store["assignment"])
    graph = load(dataset, seed=seed, progress=say, **for_load)
    say_graph(graph)
    if "assignment" not in for_store:
        say_estimate(graph, options["method"], options["cells"])
    order = {name: for_store[name] for name in ("method", "assignment") if name in for_store}
    for_store |= work.of(graph, seed=seed, **order)
    with ProgressLine() as progress:
        store = write_store(
            graph, out, seed=seed, overwrite=overwrite, progress=progress, **for_store
        )
        summary = summarize(store)
    say_store(store, summary, time.monotonic() - start)
