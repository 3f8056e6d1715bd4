"""How much memory there is: what a partitioner needs is compared with it before it starts."""

from pathlib import Path

import psutil

from gnndist.errors import ConfigError
from gnndist.partitioning.problem import Estimate

CGROUP = Path("/sys/fs/cgroup")
CACHED = "inactive_file "


def available_memory() -> int:
    """Bytes that this process may still take, of the machine and of its container."""
    available = int(psutil.virtual_memory().available)
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
        # What is cached of files counts as used there, but is given back when needed.
        statistics = (CGROUP / "memory.stat").read_text().splitlines()
        cached = sum(int(line.split()[1]) for line in statistics if line.startswith(CACHED))
    except (OSError, ValueError):
        return available
    return available if limit == "max" else min(available, int(limit) - used + cached)


def check_fits(method: str, estimates: dict[str, Estimate]) -> None:
    """Refuse a method that needs more memory than there is, and name those that do not.

    Raises
    ------
    ConfigError
        with what `method` needs, what there is, and what the others need.
    """
    available = available_memory()
    needed = estimates[method].memory
    if needed <= available:
        return
    others = [
        f"--method {other} (about {gigabytes(estimate.memory)})"
        for other, estimate in estimates.items()
        if other not in ("random", "natural") and estimate.memory < needed
    ]
    advice = f": try {' or '.join(others)}" if others else ""
    raise ConfigError(
        f"method {method!r} needs about {gigabytes(needed)} of memory for this graph, "
        f"{gigabytes(available)} are available{advice}"
    )


def gigabytes(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e9:.1f} GB"
