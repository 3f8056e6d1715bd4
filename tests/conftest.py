"""What every test shares: where the real graphs lie, and which devices there are."""

import os
from pathlib import Path

import pytest

from gnndist.device_names import CPU, GPU


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real graphs (GNNDIST_DATA, or `shared/data` beside the checkout)."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GNNDIST_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no real graphs at {folder}: set GNNDIST_DATA to their folder")
    return folder


@pytest.fixture(params=[CPU, GPU])
def device(request: pytest.FixtureRequest) -> str:
    """Each kind of device in turn; a GPU where there is one."""
    import torch

    kind: str = request.param
    if kind == GPU and not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    return kind
