"""`srun python -m gnndist.hosts.task VERB …`: gnndist as one task of a SLURM job step.

Tells the rank its place by SLURM's variables. A rank that was told to stop, and has saved, ends
with code 0: to srun any other is a failure for which it kills the rest.
"""

import os
import re
import sys

from gnndist.errors import STOPPED, USER_MISTAKE, ConfigError

PLACE = {
    "RANK": "SLURM_PROCID",
    "WORLD_SIZE": "SLURM_NTASKS",
    "LOCAL_RANK": "SLURM_LOCALID",
}


def place() -> dict[str, str]:
    """What a rank finds in its environment, from what SLURM says.

    Raises
    ------
    ConfigError
        if this is no task of a job step.
    """
    for name in (*PLACE.values(), "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"):
        if name not in os.environ:
            raise ConfigError(f"{name} is not set: start this by srun (`gnndist slurm` shows how)")
    found = {name: os.environ[slurms] for name, slurms in PLACE.items()}
    per_node = tasks_per_node(os.environ["SLURM_STEP_TASKS_PER_NODE"])
    found["LOCAL_WORLD_SIZE"] = str(per_node[int(os.environ["SLURM_NODEID"])])
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise ConfigError(f"{name} is not set: the batch script must export it")
    return found


def tasks_per_node(text: str) -> list[int]:
    """SLURM's short form written out: ``2(x3),1`` is [2, 2, 2, 1]."""
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if found is None:
            raise ConfigError(f"SLURM_STEP_TASKS_PER_NODE = {text!r}: not of the form 2(x3),1")
        counts += [int(found[1])] * int(found[2] or 1)
    return counts


def main() -> None:
    try:
        os.environ.update(place())
    except ConfigError as error:
        print(f"gnndist: error: {error}", file=sys.stderr)
        sys.exit(USER_MISTAKE)
    from gnndist.cli import main as gnndist

    try:
        gnndist()
    except SystemExit as end:
        sys.exit(0 if end.code == STOPPED else end.code)


if __name__ == "__main__":
    main()
