"""Partial stores: of each host's copy just the files that its ranks read.

A store's files hold groups of cells, so a host needs those whose rows its ranks own. Ranks own
runs of consecutive vertices that follow from the store and the number of ranks alone.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from gnndist.errors import ConfigError
from gnndist.store import Store
from gnndist.store.files import new_directory
from gnndist.store.manifest import FILE, FileEntry


def files_of(store: Store, world: int, ranks: range) -> dict[str, FileEntry]:
    """The files that some of a job's `world` ranks read: name → what the manifest says."""
    from gnndist.training.shard import runs_of

    runs = runs_of(store, world)
    return store.files_of_rows(int(runs[ranks.start]), int(runs[ranks.stop]))


def pack(
    store: Store,
    folder: Path,
    names: Sequence[str],
    ranks_per_host: int,
    *,
    overwrite: bool = False,
) -> list[tuple[Path, int]]:
    """Make a partial store for each host, `folder`/NAME.

    Files are hard links where the file system has them: nothing is copied.

    Returns
    -------
    each partial store and its size in bytes.

    Raises
    ------
    ConfigError
        more ranks than vertices, or a partial store is there already.
    """
    world = len(names) * ranks_per_host
    if world > store.num_vertices:
        raise ConfigError(f"{world} ranks: allowed are 1 to {store.num_vertices}, the vertices")
    made = []
    for host, name in enumerate(names):
        ranks = range(host * ranks_per_host, (host + 1) * ranks_per_host)
        files = files_of(store, world, ranks)
        with new_directory(folder / name, overwrite) as partial:
            for file in (*files, FILE):
                _link(store.path / file, partial / file)
        made.append((folder / name, sum(entry.size for entry in files.values())))
    return made


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
