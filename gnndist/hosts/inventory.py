"""What a host has: versions, cores, its copy of the store; and whether all hosts' agree."""

import importlib.metadata
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnndist import __version__
from gnndist.errors import ConfigError, GnndistError, StoreError
from gnndist.network import own_addresses
from gnndist.store.manifest import read_manifest

RUN_S = 5.0
"""how long a shared file system may take to show what another host has just written"""
VERSIONS = ("gnndist", "torch", "numpy")
"""packages that must be the same on every host"""


def inventory() -> dict[str, Any]:
    """What the launcher wants to know of this host."""
    return {
        "name": platform.node(),
        "versions": {package: _version(package) for package in VERSIONS},
        "cores": len(os.sched_getaffinity(0)),
        "addresses": list(own_addresses()),
    }


def problem_with(job: dict[str, Any]) -> str | None:
    """Why this host cannot take its part of a job, if it cannot."""
    try:
        if job["store"] is not None:
            _check_store(job["store"])
        if job["run"] is not None and job["first"] == 0:
            _check_run(job["run"])
    except GnndistError as error:
        return str(error)
    return None


def check_agreement(names: Sequence[str], found: Sequence[dict[str, Any]], ranks: int) -> None:
    """Compare what the hosts have; `ranks` on each.

    Raises
    ------
    ConfigError
        naming the host, and both values where two differ.
    """
    for name, here in zip(names, found, strict=True):
        for package, version in found[0]["versions"].items():
            other = here["versions"][package]
            if other != version:
                raise ConfigError(
                    f"host {name} has {package} {other}, host {names[0]} has {version}: "
                    "all hosts need the same"
                )
        if here["problem"] is not None:
            raise ConfigError(f"host {name}: {here['problem']}")
        if here["cores"] < ranks:
            raise ConfigError(
                f"host {name} has {here['cores']} cores for {ranks} ranks: allowed are "
                f"1 to {here['cores']} --ranks-per-host"
            )


def uneven(names: Sequence[str], found: Sequence[dict[str, Any]]) -> str | None:
    """What to tell of hosts with fewer cores than others."""
    cores = [here["cores"] for here in found]
    if min(cores) == max(cores):
        return None
    few, many = cores.index(min(cores)), cores.index(max(cores))
    return (
        f"warning: host {names[few]} has {cores[few]} cores, host {names[many]} has "
        f"{cores[many]}: an epoch takes as long as on the slowest"
    )


def _version(package: str) -> str:
    """Without the build (`+cpu`), which may differ; of numpy, what its pickles depend on."""
    if package == "gnndist":
        return __version__
    try:
        version = importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "none"
    return version.partition(".")[0] if package == "numpy" else version


def _check_store(store: dict[str, Any]) -> None:
    """The same store as the launcher's, with the files that this host's ranks read."""
    folder = Path(store["path"])
    manifest = read_manifest(folder)
    if manifest.fingerprint != store["fingerprint"]:
        raise StoreError(
            f"the store {folder} has fingerprint {manifest.fingerprint}, where the job was started "
            f"it has {store['fingerprint']}: copy it again"
        )
    for name, size in store["files"].items():
        file = folder / name
        if not file.is_file():
            raise StoreError(
                f"{file} is missing, which its ranks read: copy what `gnndist pack` made for as "
                "many hosts and ranks, or the whole store"
            )
        if file.stat().st_size != size:
            raise StoreError(f"{file} has {file.stat().st_size} bytes, the manifest says {size}")


def _check_run(run: dict[str, Any]) -> None:
    """The run directory that the launcher has made is rank 0's too."""
    path = Path(run["path"])
    deadline = time.monotonic() + RUN_S
    while not _reads(path / "config.json", run["config"]):
        if time.monotonic() > deadline:
            raise ConfigError(
                f"the run directory {path} is not the one where the job was started: start it on "
                "the first host, or put --out where both see it"
            )
        time.sleep(0.2)


def _reads(file: Path, content: str) -> bool:
    try:
        return file.read_text() == content
    except OSError:
        return False
