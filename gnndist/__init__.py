"""Exact full-graph training of graph neural networks on any number of ranks."""

__version__ = "0.1.0"

from gnndist.errors import ConfigError, DataError, GnndistError, RunError, StoreError
from gnndist.graph import Graph

__all__ = [
    "ConfigError",
    "DataError",
    "GnndistError",
    "Graph",
    "RunError",
    "StoreError",
    "__version__",
]
