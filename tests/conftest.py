"""What every test shares: where the real graphs lie."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real graphs (GNNDIST_DATA, or `shared/data` beside the checkout)."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GNNDIST_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no real graphs at {folder}: set GNNDIST_DATA to their folder")
    return folder
