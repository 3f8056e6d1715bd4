"""A page opened in a real headless browser: what its document became, what its console said."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1320,1600",
)


class Opened(NamedTuple):
    """A page once its scripts have run."""

    dom: str
    """the document, without its scripts"""
    console: list[str]
    """what was logged: errors above all"""


def open_page(path: Path, *, timeout_s: float = 120) -> Opened:
    """Load a file with no network at all; skips the test where there is no browser."""
    browser = os.environ.get("GNNDIST_BROWSER") or next(
        filter(None, map(shutil.which, NAMES)), None
    )
    if browser is None:
        pytest.skip(f"none of {', '.join(NAMES)} is installed: set GNNDIST_BROWSER to a browser")
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                browser,
                *QUIET,
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={profile}",
                "--enable-logging=stderr",
                "--virtual-time-budget=10000",
                "--dump-dom",
                path.resolve().as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
        )
    dom = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
    return Opened(dom, [line for line in done.stderr.splitlines() if ":CONSOLE" in line])
