"""Bytes that an epoch sends, by saving: a store, a model, some numbers of ranks.

    python benchmarks/traffic.py stores/arxiv --layers 3 --hidden 256 --ranks 2,4,8

Counted from the store and a recorded training step, the same numbers that `gnndist train` reports
as `bytes_sent` (a test holds the two equal).
"""

import dataclasses
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from gnndist.inspection.explain import explain
from gnndist.store import Store
from gnndist.training.config import TrainConfig
from gnndist.units import size


@click.command()
@click.argument("stores", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--ranks", default="2,4,8")
@click.option("--model", default="gcn")
@click.option("--layers", default=3)
@click.option("--hidden", default=256)
@click.option("--dropout", default=0.5)
def main(stores: tuple[Path, ...], ranks: str, **options: object) -> None:
    """Print a row a saving and a column a number of ranks for each of STORES."""
    config = TrainConfig(**options)
    for path in stores:
        store = Store.open(path)
        found = [explain(store, config, int(count)) for count in ranks.split(",")]
        table = Table(title=f"{path.name}: {dataclasses.asdict(config)['model']}, {options}")
        table.add_column("bytes an epoch, all ranks")
        for one in found:
            table.add_column(f"{one.ranks} ranks", justify="right")
        table.add_row("all savings", *(size(one.cost.sent) for one in found))
        for name in found[0].without:
            table.add_row(f"without {name}", *(size(one.without[name].sent) for one in found))
        table.add_row("aggregate first, plain rows", *(size(one.plain.sent) for one in found))
        shares = (one.cost.sent / max(1, one.plain.sent) for one in found)
        table.add_row("all ÷ none", *(f"{share:.3f}" for share in shares))
        Console().print(table)


if __name__ == "__main__":
    main()
