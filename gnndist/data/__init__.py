"""Graphs from where people keep them: named data sets and files, read into a `Graph`."""

from gnndist.data.loading import load
from gnndist.data.registry import Dataset, datasets
from gnndist.data.validation import validate

__all__ = ["Dataset", "datasets", "load", "validate"]
