"""PyG's own GCN on the same device: seconds an epoch."""

import time
import warnings
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gnndist.device import synchronize
from gnndist.graph import Graph


class Model(nn.Module):
    """As gnndist's GCN: ReLU and dropout between layers, the adjacency normalised once."""

    def __init__(self, widths: list[int], dropout: float) -> None:
        from torch_geometric.nn import GCNConv

        super().__init__()
        self.convs = nn.ModuleList(GCNConv(a, b, cached=True) for a, b in pairwise(widths))
        self.dropout = dropout

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        for k, conv in enumerate(self.convs):
            if k:
                x = F.dropout(x.relu(), self.dropout, self.training)
            x = conv(x, adjacency)
        return x


def seconds_an_epoch(
    graph: Graph, device: torch.device, *, form: str, hidden: int, layers: int, epochs: int
) -> list[float]:
    """Training epochs (forward, backward, Adam step) on `csr` or `edge_index`."""
    warnings.filterwarnings("ignore", message="Sparse")
    assert graph.features is not None
    assert graph.labels is not None
    n = graph.num_vertices
    indptr, indices = (torch.tensor(a, dtype=torch.int64) for a in (graph.indptr, graph.indices))
    adjacency = torch.sparse_csr_tensor(indptr, indices, torch.ones(len(indices)), (n, n))
    if form == "edge_index":
        rows = torch.repeat_interleave(torch.arange(n), indptr.diff())
        adjacency = torch.stack([indices, rows])
    x = torch.tensor(graph.features, dtype=torch.float32).to(device)
    labels = torch.tensor(graph.labels).to(device)
    train = torch.tensor(graph.splits["train"]).to(device)
    adjacency = adjacency.to(device)
    widths = [x.shape[1], *[hidden] * (layers - 1), graph.num_classes]
    model = Model(widths, 0.5).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seconds = []
    for _ in range(epochs):
        synchronize(device)
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(x, adjacency)[train], labels[train]).backward()
        optimizer.step()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    return seconds
