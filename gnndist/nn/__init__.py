"""Layers and models over a rank's view of the graph.

Layers are called as ``layer(graph, h)``. Names, defaults, initialisation and state_dicts are
torch_geometric's; results do not depend on the number of ranks.
"""

from gnndist.nn.dropout import Dropout
from gnndist.nn.gat import GATConv, GATv2Conv
from gnndist.nn.gcn import GCNConv
from gnndist.nn.gin import GINConv
from gnndist.nn.jumping import JumpingKnowledge
from gnndist.nn.norms import BatchNorm, LayerNorm
from gnndist.nn.propagation import APPNP, SGConv
from gnndist.nn.sage import SAGEConv
from gnndist.nn.sequential import Sequential
from gnndist.nn.stack import Stack

__all__ = [
    "APPNP",
    "BatchNorm",
    "Dropout",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "GINConv",
    "JumpingKnowledge",
    "LayerNorm",
    "SAGEConv",
    "SGConv",
    "Sequential",
    "Stack",
]
