"""`gnndist pack`: of a store, the part that each host needs."""

from pathlib import Path

import click

from gnndist.cli.console import say
from gnndist.errors import ConfigError


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--hosts", required=True, metavar="N | A,B,…", help="how many, or their names")
@click.option("--ranks-per-host", type=click.IntRange(min=1), default=1, help="on each  [1]")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="folder of the parts")
@click.option("--overwrite", is_flag=True, help="replace parts in --out")
def command(store: Path, hosts: str, ranks_per_host: int, out: Path, overwrite: bool) -> None:
    """Divide STORE by host, where hosts share no file system.

    Each part is a store that lacks the files its host's ranks do not read. Copy each to the same
    path on its host. Files are hard links where possible: nothing is copied yet.

    \b
    Example:
      gnndist pack stores/arxiv --hosts a,b --ranks-per-host 4 --out packed
      rsync -a packed/a/ a:/data/arxiv/; rsync -a packed/b/ b:/data/arxiv/
    """
    from gnndist.hosts import pack
    from gnndist.store import Store
    from gnndist.units import size

    names = [name.strip() for name in hosts.split(",")]
    if len(names) == 1 and names[0].isdigit():
        names = [f"host-{host}" for host in range(int(names[0]))]
    for name in names:
        if not name or "/" in name or name.startswith(".") or names.count(name) > 1:
            raise ConfigError(f"--hosts {hosts!r}: allowed are a number or different names, a,b,c")
    opened = Store.open(store)
    whole = sum(entry.size for entry in opened.manifest.files.values())
    for part, content in pack(opened, out, names, ranks_per_host, overwrite=overwrite):
        say(f"{part}: {size(content)} of {size(whole)}")
