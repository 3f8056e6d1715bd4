"""Runs found and read on disk, finished or not, without their store or their model.

Files are read as they are and not as this version would write them, so that runs of other
versions, runs that failed and runs that still go on can be looked at.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gnndist.errors import RunError
from gnndist.report.record import Line, RunRecord, seed_runs
from gnndist.training.rundir import CONFIG, ENDED, METRICS, PROFILE, RANKS, RESULT, RunDir


def read_run(path: Path | str, name: str | None = None) -> RunRecord:
    """The run in a directory.

    Raises
    ------
    RunError
        if it is not a run, or a file of it is not what a run's file is.
    """
    path = Path(path)
    if not (path / CONFIG).is_file():
        raise RunError(f"{path} is not a run: it has no {CONFIG}")
    about = _json(path / CONFIG)
    try:
        config = about.pop("config")
    except KeyError:
        raise RunError(f"{path / CONFIG} is not a run's: it has no 'config'") from None
    return RunRecord(
        path=path,
        name=name or path.resolve().name,
        config=config,
        about=about,
        started=datetime.fromtimestamp((path / CONFIG).stat().st_mtime),
        lines=list(_lines(path / METRICS)),
        result=_json_if_there(path / RESULT),
        ranks=(_json_if_there(path / RANKS) or {"ranks": []})["ranks"],
        profile=(_json_if_there(path / PROFILE) or {"ranks": []})["ranks"],
        ended=_json_if_there(path / ENDED),
        running=_is_trained_now(path),
    )


def read_runs(paths: Sequence[Path]) -> list[RunRecord]:
    """Several runs, each under the end of its path that tells it from the others.

    A run of several seeds stands for one run a seed.
    """
    every = list(dict.fromkeys(inner for path in paths for inner in seed_runs(path)))
    return [read_run(path, name) for path, name in zip(every, _short_names(every), strict=True)]


def find_runs(folder: Path) -> list[Path]:
    """The runs in a folder and its subfolders, or the folder itself if it is a run.

    Raises
    ------
    RunError
        if there is no such folder.
    """
    if not folder.is_dir():
        raise RunError(f"{folder} is not a directory: allowed is one that holds runs")
    return list(_walk(folder))


def _walk(folder: Path) -> Iterator[Path]:
    if _is_run(folder):
        yield folder
        return
    for inner in sorted(folder.iterdir()):
        if inner.is_dir() and not inner.is_symlink() and not inner.name.startswith("."):
            yield from _walk(inner)


def _is_run(folder: Path) -> bool:
    """Other programs have a config.json too."""
    try:
        written = json.loads((folder / CONFIG).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(written, dict) and {"config", "fingerprint"} <= written.keys()


def _short_names(paths: Sequence[Path]) -> list[str]:
    """The fewest last parts of each path that differ from all others'.

    A seed is named with its run, unless all are seeds of one.
    """
    parts = [path.resolve().parts for path in paths]
    one_run = len({mine[:-1] for mine in parts}) == 1
    names = []
    for mine in parts:
        least = 2 if mine[-1].startswith("seed-") and not one_run else 1
        for count in range(least, len(mine) + 1):
            if sum(other[-count:] == mine[-count:] for other in parts) == 1:
                break
        names.append("/".join(mine[-count:]))
    return names


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is not readable JSON: {error}") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} holds {type(content).__name__}: allowed is a JSON object")
    return content


def _json_if_there(path: Path) -> dict[str, Any] | None:
    return _json(path) if path.is_file() else None


def _is_trained_now(path: Path) -> bool:
    """Whether a job on this machine holds the directory."""
    try:
        with RunDir(path=path).locked():
            return False
    except RunError:
        return True


def _lines(path: Path) -> Iterator[Line]:
    """The epochs; a line that a killed process cut short is left out."""
    if not path.is_file():
        return
    for line in path.read_text().splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "epoch" in found:
            yield found
