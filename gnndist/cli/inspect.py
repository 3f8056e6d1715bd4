"""`gnndist inspect`: what a store means for numbers of ranks, before any process is started."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnndist.cli.console import console, explain_savings, say
from gnndist.cli.options import config_options, given
from gnndist.errors import ConfigError
from gnndist.training.config import TrainConfig

if TYPE_CHECKING:
    from gnndist.inspection.network import Network
    from gnndist.store import Store

SHOWN = ("model", "layers", "hidden", "dropout", "input_dropout", "norm")
"""options of the model that the help lists; all of `gnndist train` are taken"""


@click.command(short_help="Predict traffic, memory and time.")
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--ranks", default="2,4,8", help="numbers of ranks, by commas  [2,4,8]")
@click.option("--bandwidth", default="10Gbit", help="of a host's link, each way  [10Gbit]")
@click.option("--latency", default="50us", help="from host to host  [50us]")
@click.option(
    "--ranks-per-host",
    type=click.IntRange(min=0),
    default=1,
    help="hosts are like this one; 0: all ranks on one  [1]",
)
@click.option("--plot", type=click.Path(path_type=Path), help="PNG, PDF or SVG to draw")
@click.option("--json", "as_json", is_flag=True, help="plain data instead of tables")
@click.option("--explain", is_flag=True, help="also what each exact saving saves")
@click.option("--graph-only", is_flag=True, help="leave out what depends on a model")
@click.option("--measure", is_flag=True, help="measure this machine again")
@click.option("--run", type=click.Path(path_type=Path), help="compare with what a run measured")
@click.option("--config", "files", multiple=True, type=click.Path(path_type=Path), help="TOML file")
@config_options(TrainConfig)
def command(
    store: Path,
    ranks: str,
    bandwidth: str,
    latency: str,
    ranks_per_host: int,
    plot: Path | None,
    as_json: bool,
    explain: bool,
    graph_only: bool,
    measure: bool,
    run: Path | None,
    files: tuple[Path, ...],
    **options: Any,
) -> None:
    """What STORE means for some numbers of ranks: balance, traffic, memory, time of an epoch.

    \b
    Examples:
      gnndist inspect stores/arxiv --ranks 2,4,8,64 --model gcn --layers 3 --plot ranks.png
      gnndist inspect stores/arxiv --ranks 128,1024 --bandwidth 25Gbit --latency 20us
    Nothing is trained and no process started; the first time on a machine, its speed is measured.
    """
    from gnndist.inspection.advice import warnings
    from gnndist.inspection.comparison import comparison_data, comparison_table, read_measured
    from gnndist.inspection.network import Network, parse_bandwidth, parse_latency
    from gnndist.inspection.plot import draw, need_matplotlib
    from gnndist.inspection.prediction import Inspector
    from gnndist.inspection.rates import Rates
    from gnndist.inspection.tables import as_data, tables, work_table
    from gnndist.store import Store
    from gnndist.training.config_files import combined
    from gnndist.training.rundir import RunDir

    if plot is not None:
        need_matplotlib(plot)
    counts = _numbers(ranks)
    opened = Store.open(store)
    manifest = opened.manifest
    trains = manifest.num_features > 0 and manifest.split_sizes["train"] > 0
    config = combined(files, given(options)) if trains and not graph_only else None
    measured = None
    if run is not None:
        trained = RunDir.open(run)
        trained.check_single()
        trained.store(store)
        measured = read_measured(trained)
        config, counts, ranks_per_host = trained.config(), [measured.ranks], measured.ranks_per_host
    network = Network(
        bandwidth=parse_bandwidth(bandwidth),
        latency=parse_latency(latency),
        ranks_per_host=ranks_per_host or max(counts),
    )
    rates = Rates.of_this_machine(again=measure) if config is not None else None
    if not as_json:
        _say_what(opened, config, network)
    inspector = Inspector(opened, config, network, rates)
    found = [inspector.at(count) for count in counts]
    advice = [warnings(opened, one) for one in found]
    if as_json:
        data = {
            "store": str(store),
            "fingerprint": opened.fingerprint,
            "config": None if config is None else config.to_dict(),
            "network": vars(network),
            "rates": None if rates is None else rates.values,
            "inspections": [as_data(*pair) for pair in zip(found, advice, strict=True)],
        }
        if measured is not None:
            data["comparison"] = comparison_data(found[0], measured)
        click.echo(json.dumps(data))
    else:
        for table in tables(found, console.width):
            console.print(table)
        by_rank = work_table(found)
        if by_rank is not None and measured is None:
            console.print(by_rank)
        for one, lines in zip(found, advice, strict=True):
            for line in lines:
                ranks_of = "rank" if one.ranks == 1 else "ranks"
                console.print(f"[yellow]![/] {one.ranks:,} {ranks_of}: {line}")
        if measured is not None:
            console.print(comparison_table(found[0], measured))
    if explain and config is not None and not as_json:
        for count in counts:
            explain_savings(opened, config, count)
    if plot is not None:
        draw(found, opened.manifest.name or store.name, plot)
        if not as_json:
            say(f"drew {plot}")


for _option in command.params:
    if _option.name in TrainConfig.__dataclass_fields__ and _option.name not in SHOWN:
        _option.hidden = True  # type: ignore[attr-defined]


def _numbers(text: str) -> list[int]:
    """Numbers of ranks from "2,4,8"."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise ConfigError(f"--ranks {text!r}: allowed are numbers from 1, such as 2,4,8")
    return list(dict.fromkeys(numbers))


def _say_what(store: "Store", config: TrainConfig | None, network: "Network") -> None:
    manifest = store.manifest
    cells = len(manifest.cell_edges)
    say(
        f"{store.path}: {store.num_vertices:,} vertices, {store.num_edges:,} edges, {cells} "
        f"{'cell' if cells == 1 else 'cells'} by {manifest.partitioning['method']}"
    )
    if config is None:
        return
    say(
        f"{config.model}, {config.layers} layers, {config.hidden} wide, dropout {config.dropout:g};"
        f" {_hosts(network)}"
    )


def _hosts(network: "Network") -> str:
    """What the prediction assumes."""
    rate = 8e-9 * network.bandwidth
    each = f"{network.ranks_per_host} {'rank' if network.ranks_per_host == 1 else 'ranks'}"
    return f"hosts like this one with {each} each, {rate:g} Gbit/s, {1e6 * network.latency:g} µs"
