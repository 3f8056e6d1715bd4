"""Tables of a comparison: epochs by contender, losses, ratios against their targets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from peers.contender import Contender
from peers.targets import TARGETS
from rich.console import Console
from rich.table import Table

LOSS_TOLERANCE = {"float32": 1e-4, "float64": 1e-7}
"""largest relative difference of two contenders' losses at the same epoch without dropout"""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One model with or without dropout, all contenders."""

    model: str
    dropout: float
    dtype: str
    contenders: Sequence[Contender]

    @property
    def medians(self) -> dict[str, float]:
        return {c.entry.key: c.median_s for c in self.contenders}

    @property
    def loss_difference(self) -> float | None:
        """Largest relative difference between losses of an epoch; None with dropout."""
        lists = [c.losses for c in self.contenders if c.losses]
        if self.dropout > 0 or len(lists) < 2:
            return None
        together = list(zip(*lists, strict=False))
        return max((max(e) - min(e)) / abs(min(e)) for e in together)

    @property
    def losses_agree(self) -> bool | None:
        """Whether all contenders computed the same; None with dropout."""
        difference = self.loss_difference
        return None if difference is None else difference <= LOSS_TOLERANCE[self.dtype]

    def as_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "dropout": self.dropout,
            "dtype": self.dtype,
            "loss_difference": self.loss_difference,
            "losses_agree": self.losses_agree,
            "contenders": [c.as_dict() for c in self.contenders],
        }


def show_section(section: Section, console: Console) -> None:
    """Medians, spread, memory and losses of every contender."""
    title = f"{section.model}, dropout {section.dropout:g}, {section.dtype}"
    table = Table(title=title, title_justify="left")
    table.add_column("contender", no_wrap=True)
    for heading in ("processes", "median s", "least", "most", "peak GB (of one)", "last loss"):
        table.add_column(heading, justify="right")
    for c in section.contenders:
        threads = "thread" if c.entry.threads == 1 else "threads"
        shape = f"{c.entry.processes} × {c.entry.threads} {threads}"
        if c.failure is not None or not c.epochs:
            table.add_row(c.entry.key, shape, "failed")
            continue
        seconds = [e["seconds"] for e in c.epochs]
        figures = [f"{s:.3f}" for s in (c.median_s, min(seconds), max(seconds))]
        peaks = f"{sum(c.peaks) / 1e9:.2f}"
        if len(c.peaks) > 1:
            peaks += f" ({max(c.peaks) / 1e9:.2f})"
        table.add_row(c.entry.key, shape, *figures, peaks, f"{c.losses[-1]:.6f}")
    console.print(table)
    for c in section.contenders:
        if c.failure is not None:
            console.print(f"{c.entry.key}: {c.failure}", markup=False, soft_wrap=True)
    if section.loss_difference is not None:
        verdict = "agree" if section.losses_agree else "[bold red]DISAGREE[/]"
        console.print(
            f"losses {verdict}: largest relative difference {section.loss_difference:.1e}, "
            f"allowed {LOSS_TOLERANCE[section.dtype]:.0e}\n"
        )


def ratios(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Every target that the sections have figures for."""
    found = []
    for target in TARGETS:
        for section in sections:
            if section.model != target.model or (section.dropout > 0) != target.dropout:
                continue
            result = target.ratio(section.medians)
            if result is not None:
                ours, theirs, ratio = result
                found.append(
                    {
                        "model": target.model,
                        "dropout": section.dropout,
                        "ours": ours,
                        "theirs": theirs,
                        "ratio": ratio,
                        "target": target.most,
                        "reached": ratio <= target.most,
                    }
                )
    return found


def show_ratios(found: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table(title="epoch time, ratios of medians", title_justify="left")
    for heading in ("model", "dropout", "gnndist", "against"):
        table.add_column(heading)
    for heading in ("ratio", "target", ""):
        table.add_column(heading, justify="right")
    for r in found:
        verdict = "[green]reached[/]" if r["reached"] else "[red]missed[/]"
        figures = (f"{r['ratio']:.3f}", f"≤ {r['target']:.2f}", verdict)
        table.add_row(r["model"], f"{r['dropout']:g}", r["ours"], r["theirs"], *figures)
    console.print(table)
