"""A batch script for SLURM: one task a rank, started by srun.

The ranks are SLURM's own tasks (`gnndist.hosts.task` tells each its place), so that its limits,
binding, accounting and signals reach them. Before the time limit and on preemption they finish the
epoch, save and end well; the script then puts the job back in the queue, where it resumes.
"""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from gnndist.errors import ConfigError

TASK = "gnndist.hosts.task"


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """What the script asks SLURM for.

    Raises
    ------
    ConfigError
        for a number that is not allowed.
    """

    name: str
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int | None = None
    gpus_per_node: int | None = None
    time: str | None = None
    """limit, as SLURM writes it: minutes, HH:MM:SS or D-HH:MM:SS"""
    warning_s: int = 120
    """how long before the limit the ranks are told to stop: more than an epoch and a checkpoint"""
    partition: str | None = None
    account: str | None = None
    more: Sequence[str] = ()
    """further options of sbatch"""
    python: str = field(default_factory=lambda: sys.executable)
    """the interpreter on the nodes that has gnndist"""

    def __post_init__(self) -> None:
        for name in ("nodes", "ranks_per_node", "cpus_per_rank", "gpus_per_node", "warning_s"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} = {value}: allowed are 1 and more")
        for line in self.more:
            if not line.startswith("-") or "\n" in line:
                raise ConfigError(f"--sbatch {line!r}: allowed are options such as --exclusive")

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    def script(self, store: str, run: str, options: Sequence[str]) -> str:
        """The script that trains from `store` into the run directory `run`.

        `options`: of `gnndist train`, for the first start; a run that is there is resumed.
        """
        directives = "\n".join(f"#SBATCH {option}" for option in self._directives())
        return TEMPLATE.format(
            directives=directives,
            warning=self.warning_s,
            python=shlex.quote(self.python),
            run=shlex.quote(run),
            store=shlex.quote(store),
            options="".join(f" {shlex.quote(option)}" for option in options),
            task=TASK,
        )

    def _directives(self) -> list[str]:
        given = {
            "job-name": self.name,
            "nodes": self.nodes,
            "ntasks-per-node": self.ranks_per_node,
            "cpus-per-task": self.cpus_per_rank,
            "gpus-per-node": self.gpus_per_node,
            "time": self.time,
            "partition": self.partition,
            "account": self.account,
            "signal": f"TERM@{self.warning_s}",
            "open-mode": "append",
            "output": "%x-%j.log",
        }
        lines = [f"--{name}={value}" for name, value in given.items() if value is not None]
        return [*lines, "--requeue", *self.more]


TEMPLATE = """#!/bin/bash
{directives}

# One task a rank. {warning} s before the time limit, and when the job is preempted, every rank gets
# SIGTERM: it finishes its epoch and saves. The job then goes back to the queue and resumes.
trap : TERM

PYTHON={python}
RUN={run}

# Ranks meet at the first node; the port differs from job to job.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR MASTER_PORT
export OMP_NUM_THREADS=${{SLURM_CPUS_PER_TASK:-1}} THP_MEM_ALLOC_ENABLE=1

if [ -f "$RUN/config.json" ]; then
  what=(--resume "$RUN")
else
  what=({store} --out "$RUN"{options})
fi

# srun takes the number of cores from its own option since SLURM 22.05.
srun --kill-on-bad-exit=1 --cpus-per-task="$OMP_NUM_THREADS" \\
  "$PYTHON" -m {task} train "${{what[@]}}" --threads "$OMP_NUM_THREADS" || exit $?

if [ ! -f "$RUN/result.json" ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
"""
