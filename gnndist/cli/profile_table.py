"""The table that `gnndist train --profile` ends with."""

from collections.abc import Sequence

from rich.table import Table

from gnndist.cli.console import console, say
from gnndist.training.breakdown import PARTS, EpochParts, mean_parts
from gnndist.training.rundir import RunDir

SHOWN = 8
"""ranks with a column of their own"""


def show_profile(run: RunDir) -> None:
    """Print a run's profile and where its traces lie."""
    table = profile_table(run.profile())
    if table is None:
        say("no epoch was profiled: the run ended before its third")
        return
    console.print(table)
    say(f"traces: {run.trace}/rank-*.json (open them at https://ui.perfetto.dev)")


def profile_table(ranks: Sequence[Sequence[EpochParts]]) -> Table | None:
    """Milliseconds an epoch by part, a column a rank; None where no epoch was profiled.

    Of many ranks, the fastest and the slowest are shown.
    """
    if not all(ranks):
        return None
    means = [mean_parts(epochs) for epochs in ranks]
    shown = list(range(len(means)))
    if len(means) > SHOWN:
        order = sorted(shown, key=lambda rank: means[rank].epoch_s - means[rank].waiting_s)
        shown = [*order[: SHOWN // 2], *order[-SHOWN // 2 :]]
    numbers = [epoch.epoch for epoch in ranks[0]]
    which = f"epochs {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"epoch {numbers[0]}"
    table = Table(title=f"one epoch, ms (mean of {which})", title_justify="left")
    table.add_column("")
    for rank in shown:
        table.add_column(f"rank {rank}", justify="right")
    for part, name in PARTS.items():
        table.add_row(name, *(_cell(means[r].parts[part], means[r].epoch_s) for r in shown))
    table.add_section()
    table.add_row("epoch", *(_cell(means[r].epoch_s, means[r].epoch_s) for r in shown))
    table.add_row("exchange, hidden", *(f"{1000 * means[r].hidden_s:.2f}     " for r in shown))
    return table


def _cell(seconds: float, epoch_s: float) -> str:
    share = 100 * seconds / epoch_s if epoch_s else 0.0
    return f"{1000 * seconds:.2f} {share:3.0f}%"
