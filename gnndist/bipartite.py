"""A rank's part of the graph as message-passing libraries take it."""

from typing import NamedTuple

import torch
from torch import Tensor

from gnndist.neighbours import Neighbourhood


class Bipartite(NamedTuple):
    """Sources and destinations of a rank's edges, destinations first among the sources.

    That is the convention of PyTorch Geometric's and DGL's sampled blocks, so that

    - ``conv((b.features, b.outputs), b.edge_index)`` runs a ``torch_geometric.nn`` layer, and
    - ``dgl.create_block(tuple(b.edge_index), num_src_nodes=len(b.features),
      num_dst_nodes=b.num_outputs)`` is the block for a DGL one.

    Every output vertex has all its in-neighbours here. A layer that asks for the degrees of the
    sources (PyTorch Geometric's `GCNConv`) does not find them: the halo's edges are elsewhere.
    """

    features: Tensor
    """[n_in + halo, F] the output vertices, then the other owned vertices, then the halo"""
    edge_index: Tensor
    """[2, E] int64: rows of `features` → rows of the output"""
    edge_weight: Tensor | None
    """[E] of the features' type; None if the graph has no weights"""
    num_outputs: int
    """n_out"""

    @property
    def outputs(self) -> Tensor:
        """[n_out, F] the features of the output vertices."""
        return self.features[: self.num_outputs]


class Order(NamedTuple):
    """Owned columns with a view's output vertices first."""

    order: Tensor
    """[n_in] the columns in their new order"""
    place: Tensor
    """[n_in] where each column went"""

    @classmethod
    def outputs_first(cls, row_at: Tensor, num_columns: int) -> "Order":
        """`row_at` [n_out]: the columns of the output vertices."""
        rest = torch.ones(num_columns, dtype=torch.bool, device=row_at.device)
        rest[row_at] = False
        order = torch.cat([row_at, rest.nonzero().flatten()])
        place = torch.empty_like(order)
        place[order] = torch.arange(num_columns, device=row_at.device)
        return cls(order, place)


def bipartite(h: Tensor, around: Neighbourhood, weighted: bool, order: Order | None) -> Bipartite:
    """Exchange h, [n_in, F], and lay it out with the rank's edges; `order` None keeps the rows."""
    halo = around.exchange(h)
    operators = around.operators
    owned = around.owned.column if order is None else order.place[around.owned.column]
    edge_index = torch.stack(
        [
            torch.cat([owned, around.halo.column + operators.local.num_cols]),
            torch.cat([around.owned.row, around.halo.row]),
        ]
    )
    weight = None
    if weighted:
        weight = torch.cat(
            [
                h.new_ones(matrix.nnz) if matrix.values is None else matrix.values
                for matrix in (operators.local, operators.receive)
            ]
        )
    first = h if order is None else h[order.order]
    return Bipartite(torch.cat([first, halo.wait()]), edge_index, weight, around.owned.csr.num_rows)
