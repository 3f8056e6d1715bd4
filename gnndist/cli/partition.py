"""`gnndist partition`: a graph from where it lies to a store."""

import time
from pathlib import Path
from typing import Any

import click

from gnndist.cli.partition_output import ProgressLine, say, say_estimate, say_graph, say_store
from gnndist.partitioning import METHODS

NOT_FOR_LOAD = ("cells", "method", "assignment", "vertex_work")


@click.command(short_help="Turn a graph into a store.")
@click.argument("dataset")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="store to make")
@click.option("--overwrite", is_flag=True, help="replace the store in --out")
@click.option("--root", type=click.Path(path_type=Path), help="where raw files lie  [data]")
@click.option("--method", type=click.Choice(list(METHODS)), help="partitioner  [metis]")
@click.option("--cells", type=int, help="cells  [from the graph's size, at most 256]")
@click.option("--seed", type=int, default=0, help="of partition and synthetic graphs  [0]")
@click.option(
    "--assignment", type=click.Path(path_type=Path), help="your own: .npy, cell by vertex"
)
@click.option(
    "--symmetrize/--directed", default=None, help="add every edge's reverse, or not  [by dataset]"
)
@click.option("--split", help="random | per-class:N, instead of the data's own")
@click.option("--split-seed", type=int, help="of a split that is dealt out  [0]")
@click.option("--split-index", type=int, help="which, where a file has several  [0]")
@click.option("--features", type=click.Path(path_type=Path), help="of an edge list: .npy or .csv")
@click.option("--labels", type=click.Path(path_type=Path), help="of an edge list: .npy or .csv")
@click.option(
    "--normalize-features/--raw-features", default=None, help="rows to sum 1  [by dataset]"
)
@click.option("--yes", is_flag=True, help="download without asking")
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
    given = {name: value for name, value in options.items() if value is not None}
    for_load = {name: value for name, value in given.items() if name not in NOT_FOR_LOAD}
    for_store = {name: value for name, value in given.items() if name in NOT_FOR_LOAD}
    if "assignment" in for_store:
        for_store["assignment"] = read_assignment(for_store["assignment"])
    graph = load(dataset, seed=seed, progress=say, **for_load)
    say_graph(graph)
    if "assignment" not in for_store:
        say_estimate(graph, options["method"], options["cells"])
    with ProgressLine() as progress:
        store = write_store(
            graph, out, seed=seed, overwrite=overwrite, progress=progress, **for_store
        )
        summary = summarize(store)
    say_store(store, summary, time.monotonic() - start)
