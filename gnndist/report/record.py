"""What is known of a run, finished or not, and its figures."""

import math
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from gnndist.tasks import TASKS
from gnndist.training.rundir import CONFIG, RESULT

Line = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What one run was told and what it measured."""

    path: Path
    name: str
    """what it is called among the runs it is shown with"""
    config: dict[str, Any]
    """its options"""
    about: dict[str, Any]
    """store, versions, host, command"""
    started: datetime
    lines: list[Line]
    """an epoch each, ascending"""
    result: dict[str, Any] | None
    """None where the run has not finished"""
    ranks: list[dict[str, Any]]
    """by rank, where the run has got so far"""
    profile: list[list[dict[str, Any]]]
    """by rank, the parts of each profiled epoch, where there are any"""
    ended: dict[str, str] | None = None
    """why its last job ended early: `state` (failed or stopped), `message`, `at`"""
    running: bool = False
    """whether a job trains it now"""

    @property
    def finished(self) -> bool:
        return self.state == "finished"

    @property
    def state(self) -> str:
        """finished, running, failed, stopped (by a signal) or unfinished (nothing says why)."""
        if self.running:
            return "running"
        if self.ended is not None:
            return self.ended["state"]
        return "unfinished" if self.result is None else "finished"

    @property
    def progress(self) -> str:
        """How far it has come."""
        if self.seeds:
            done = sum((path / RESULT).is_file() for path in seed_runs(self.path))
            return f"{done}/{len(self.seeds)} seeds"
        planned = self.config.get("epochs", "?")
        return f"epoch {self.epochs}/{planned}"

    @property
    def seeds(self) -> list[int]:
        """Of a run of several."""
        return list(self.about.get("seeds", ()))

    @property
    def epochs(self) -> int:
        """Epochs that are done."""
        return int(self.lines[-1]["epoch"]) if self.lines else 0

    @property
    def num_ranks(self) -> int:
        return int((self.result or self.about).get("ranks", len(self.ranks)))

    # --- figures --------------------------------------------------------------------------------

    @cached_property
    def metrics(self) -> list[str]:
        """The metrics that were evaluated, the one that selects the best epoch first."""
        lines = [*self.lines, (self.result or {}).get("mean", {})]
        keys = dict.fromkeys(key for line in lines for key in line)
        found = [key.partition("_")[2] for key in keys if key.startswith("valid_")]
        selecting = {kind.metric for kind in TASKS.values()}
        return sorted(found, key=lambda name: name not in selecting)

    @property
    def metric(self) -> str | None:
        return self.metrics[0] if self.metrics else None

    @property
    def better(self) -> int:
        """1 where more of the main metric is better, −1 where less is."""
        return next(
            (1 if k.higher_is_better else -1 for k in TASKS.values() if k.metric == self.metric), 1
        )

    @cached_property
    def best(self) -> Line:
        """The evaluated epoch with the best validation figure; empty if none was evaluated.

        Of several seeds, the mean of theirs.
        """
        if self.result is not None and self.seeds:
            return dict(self.result["mean"])
        if self.result is not None:
            return {**self.result, "epoch": self.result["best_epoch"]}
        key = f"valid_{self.metric}"
        evaluated = [line for line in self.lines if key in line]
        known = [line for line in evaluated if not math.isnan(line[key])]
        if not known:
            return evaluated[-1] if evaluated else {}
        return max(known, key=lambda line: self.better * line[key])

    def figure(self, split: str) -> float | None:
        """The main metric of a split at the best epoch."""
        value = self.best.get(f"{split}_{self.metric}")
        return None if value is None else float(value)

    def spread(self, split: str) -> float | None:
        """The standard deviation of that over a run's seeds."""
        value = (self.result or {}).get("std", {}).get(f"{split}_{self.metric}")
        return None if value is None else float(value)

    @property
    def loss(self) -> float | None:
        """The last epoch's."""
        return self.lines[-1]["loss"] if self.lines else None

    @property
    def epoch_s(self) -> float | None:
        """Mean seconds an epoch, the first left out where there are more."""
        if self.result is not None:
            return float(self.result["mean_epoch_s"])
        steady = [line["epoch_s"] for line in self.lines[1:] or self.lines]
        return sum(steady) / len(steady) if steady else None

    @property
    def bytes_per_epoch(self) -> int | None:
        """Sent by all ranks in the last epoch."""
        return self.lines[-1].get("bytes_sent") if self.lines else None

    @property
    def halo(self) -> int | None:
        return None if self.result is None else self.result.get("halo")

    @property
    def vertices(self) -> int | None:
        return None if self.result is None else self.result.get("vertices")

    @property
    def peak_memory(self) -> int | None:
        """Bytes, of the rank that took most."""
        return max((rank["peak_memory_bytes"] for rank in self.ranks), default=None)


def seed_runs(path: Path) -> list[Path]:
    """The runs of a run of several seeds; of another, the run itself."""
    inner = sorted(path.glob(f"seed-*/{CONFIG}"), key=lambda p: (len(p.parent.name), p))
    return [found.parent for found in inner] or [path]
