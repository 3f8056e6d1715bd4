"""Layers and models over a rank's view of the graph."""

from gnndist.nn.dropout import Dropout
from gnndist.nn.gcn import GCNConv

__all__ = ["Dropout", "GCNConv"]
