"""Exact full-graph training of graph neural networks on any number of ranks."""

__version__ = "0.1.0"

import importlib
from typing import TYPE_CHECKING, Any

from gnndist.errors import (
    ConfigError,
    DataError,
    GnndistError,
    JobFailed,
    JobStopped,
    RunError,
    StoreError,
)
from gnndist.graph import Graph
from gnndist.training.config import TrainConfig

if TYPE_CHECKING:
    from gnndist.job import resume, train

__all__ = [
    "ConfigError",
    "DataError",
    "GnndistError",
    "Graph",
    "JobFailed",
    "JobStopped",
    "RunError",
    "StoreError",
    "TrainConfig",
    "__version__",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    # These import torch, which takes seconds: `gnndist --help` should not.
    if name in ("train", "resume"):
        return getattr(importlib.import_module("gnndist.job"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
