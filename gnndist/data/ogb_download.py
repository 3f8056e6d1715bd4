"""Fetching an OGB data set that is missing: OGB's own archives, said first and asked for."""

import shutil
import sys
import urllib.error
import urllib.request
import zipfile
from http.client import HTTPException
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
from rich.prompt import Confirm

from gnndist.data.files import malformed
from gnndist.data.ogb import LAYOUTS, is_there
from gnndist.errors import DataError

URL = "http://snap.stanford.edu/ogb/data/nodeproppred"
_ARCHIVES = {  # name: (archive, GB to download, GB on disk while it is unpacked)
    "ogbn-arxiv": ("arxiv", 0.1, 0.2),
    "ogbn-products": ("products", 1.5, 3.0),
    "ogbn-proteins": ("proteins", 0.2, 0.5),
    "ogbn-papers100M": ("papers100M-bin", 61.0, 145.0),
    "ogbn-mag": ("mag", 0.4, 0.9),
}
BLOCK = 1 << 20


def ensure_downloaded(name: str, root: Path, *, yes: bool, url: str = URL) -> None:
    """Download and unpack the data set `name` to `root` unless it is there.

    Without `yes` the person at the terminal is asked; where there is none, nothing is done.

    Raises
    ------
    DataError
        refused, no terminal to ask at, no network, a full disk, a damaged archive.
    """
    if is_there(name, root):
        return
    archive, size, disk = _ARCHIVES[name]
    address = f"{url}/{archive}.zip"
    statement = (
        f"{name} is not in {root / LAYOUTS[name].folder}. It can be downloaded from {address}: "
        f"about {size:g} GB, and {disk:g} GB on disk while it is unpacked."
    )
    console = Console(stderr=True)
    if not yes:
        if not sys.stdin.isatty():
            raise DataError(
                f"{statement} To do so pass --yes (yes=True); if you have it, say where with "
                "--root (root=)"
            )
        if not Confirm.ask(f"{statement} Download it?", console=console, default=False):
            raise DataError(f"{name}: not downloaded, since the answer was no")
    console.print(statement, highlight=False, soft_wrap=True)
    try:
        root.mkdir(parents=True, exist_ok=True)
        zipped = root / f"{archive}.zip"
        if not zipped.exists():
            _fetch(address, zipped, console)
        _unpack(zipped, archive, root / LAYOUTS[name].folder)
    except (urllib.error.URLError, HTTPException, ConnectionError, TimeoutError) as error:
        raise DataError(f"{name}: {address} cannot be downloaded: {error}") from error
    except OSError as error:
        raise DataError(f"{name}: cannot be stored in {root}: {error}") from error
    if not is_there(name, root):
        raise DataError(f"{address}: unpacked, but it holds no {LAYOUTS[name].marker}")


def _fetch(address: str, target: Path, console: Console) -> None:
    """Download to `target`, which appears when it is complete; a part is continued."""
    part = target.with_name(f"{target.name}.part")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with (
        urllib.request.urlopen(request, timeout=60) as answer,
        part.open("ab" if getattr(answer, "status", None) == 206 else "wb") as file,
        Progress(*columns, console=console) as progress,
    ):
        rest = answer.headers.get("Content-Length")
        total = int(rest) + file.tell() if rest is not None else None
        task = progress.add_task(target.name, total=total, completed=file.tell())
        while block := answer.read(BLOCK):
            file.write(block)
            progress.advance(task, len(block))
        if total is not None and file.tell() != total:
            raise DataError(
                f"{address}: {file.tell():,} of {total:,} bytes came: try again to continue"
            )
    part.rename(target)


def _unpack(zipped: Path, archive: str, folder: Path) -> None:
    """Unpack `zipped`, whose one folder is named `archive`, to `folder`; then remove it."""
    if folder.exists():
        raise DataError(f"{folder}: is there, but holds no data set: remove it to download anew")
    work = zipped.with_name(f".{zipped.name}.unpacked")
    try:
        broken = (zipfile.BadZipFile, EOFError, ValueError)
        with malformed(zipped, "a sound zip archive", *broken), zipfile.ZipFile(zipped) as file:
            file.extractall(work)
        if not (work / archive).is_dir():
            raise DataError(f"{zipped}: holds no folder {archive}")
        (work / archive).rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    zipped.unlink()
