"""`gnndist slurm`: a batch script that trains under SLURM."""

from pathlib import Path
from typing import Any

import click

from gnndist.cli.long_help import LongHelp
from gnndist.cli.options import config_options, given
from gnndist.cli.train import SECTIONS
from gnndist.hosts.slurm import SlurmJob
from gnndist.training.config import TrainConfig

USUAL = (
    *("nodes", "ranks_per_node", "cpus_per_rank", "gpus_per_node", "time", "partition", "account"),
    *("sbatch", "warning_s", "python", "out", "files", "seeds", "model", "layers", "hidden"),
    "epochs",
)


@click.command(cls=LongHelp, usual=USUAL, sections=SECTIONS)
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--nodes", type=int, required=True, help="of the cluster")
@click.option("--ranks-per-node", type=click.IntRange(min=1), default=1, help="[1]")
@click.option("--cpus-per-rank", type=click.IntRange(min=1), help="cores  [SLURM's default]")
@click.option("--gpus-per-node", type=click.IntRange(min=1), help="[none]")
@click.option("--time", metavar="HH:MM:SS", help="limit; the job is requeued until it is done")
@click.option("--partition", metavar="NAME", help="[SLURM's default]")
@click.option("--account", metavar="NAME", help="[SLURM's default]")
@click.option("--sbatch", multiple=True, metavar="OPTION", help="another, such as --exclusive")
@click.option("--warning-s", type=click.IntRange(min=1), default=120, help="before the limit [120]")
@click.option("--python", metavar="PATH", help="the interpreter on the nodes  [this one]")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="run directory")
@click.option(
    "--config",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="TOML file of options; of several, later ones win",
)
@click.option("--seeds", type=click.IntRange(min=1), help="trainings, each with its seed  [1]")
@config_options(TrainConfig)
def command(
    store: Path,
    nodes: int,
    ranks_per_node: int,
    cpus_per_rank: int | None,
    gpus_per_node: int | None,
    time: str | None,
    partition: str | None,
    account: str | None,
    sbatch: tuple[str, ...],
    warning_s: int,
    python: str | None,
    out: Path,
    files: tuple[Path, ...],
    seeds: int | None,
    **options: Any,
) -> None:
    """Print a batch script that trains on STORE under SLURM.

    It takes the options of `gnndist train` too (--help-all lists them).

    \b
    Example:
      gnndist slurm stores/arxiv --nodes 2 --ranks-per-node 4 --cpus-per-rank 8 \\
          --time 04:00:00 --out runs/arxiv --epochs 500 > job.sh
      sbatch job.sh
    """
    from gnndist import job
    from gnndist.store import Store
    from gnndist.training.config_files import combined

    chosen = given(options)
    asked = {"python": python} if python else {}
    slurm = SlurmJob(
        name=f"gnndist-{out.name}",
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        cpus_per_rank=cpus_per_rank,
        gpus_per_node=gpus_per_node,
        time=time,
        warning_s=warning_s,
        partition=partition,
        account=account,
        more=sbatch,
        **asked,
    )
    job.check(Store.open(store), combined(files, chosen), slurm.ranks, here=False)
    arguments = [part for file in files for part in ("--config", str(file))]
    arguments += ["--seeds", str(seeds)] if seeds else []
    arguments += [part for name, value in chosen.items() for part in _as_option(name, value)]
    click.echo(slurm.script(str(store), str(out), arguments), nl=False)


def _as_option(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{'' if value else 'no-'}{flag}"]
    return [f"--{flag}", str(value)]
