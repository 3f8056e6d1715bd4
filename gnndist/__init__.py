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
    from gnndist.hosts import Hosts
    from gnndist.job import resume, train

__all__ = [
    "ConfigError",
    "DataError",
    "GnndistError",
    "Graph",
    "Hosts",
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
    # These import torch or much else, which takes seconds: `gnndist --help` should not.
    where = {"train": "gnndist.job", "resume": "gnndist.job", "Hosts": "gnndist.hosts"}
    if name in where:
        return getattr(importlib.import_module(where[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
