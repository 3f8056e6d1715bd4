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


class Layout(NamedTuple):
    """What does not change from call to call: the edges, and the order of the owned rows."""

    edge_index: Tensor
    edge_weight: Tensor | None
    num_outputs: int
    order: Tensor | None
    """[n_in] the columns with the output vertices first; None: they are in order already"""

    @classmethod
    def of(
        cls, around: Neighbourhood, row_at: Tensor | None, weight_dtype: torch.dtype | None
    ) -> "Layout":
        """Where everything lies.

        Parameters
        ----------
        row_at:
            [n_out] the columns of the output vertices; None: the same vertices in the same order.
        weight_dtype:
            of the edges' weights; None: there are none.
        """
        operators, owned = around.operators, around.owned.column
        order = None
        if row_at is not None:
            order, place = _outputs_first(row_at, operators.local.num_cols)
            owned = place[owned]
        sources = torch.cat([owned, around.halo.column + operators.local.num_cols])
        weight = None
        if weight_dtype is not None:
            weight = torch.cat(
                [
                    sources.new_ones(matrix.nnz, dtype=weight_dtype)
                    if matrix.values is None
                    else matrix.values
                    for matrix in (operators.local, operators.receive)
                ]
            )
        return cls(
            torch.stack([sources, torch.cat([around.owned.row, around.halo.row])]),
            weight,
            around.owned.csr.num_rows,
            order,
        )


def _outputs_first(row_at: Tensor, num_columns: int) -> tuple[Tensor, Tensor]:
    """The columns with those at `row_at` first, and where each column went; [n_in] both."""
    rest = torch.ones(num_columns, dtype=torch.bool, device=row_at.device)
    rest[row_at] = False
    order = torch.cat([row_at, rest.nonzero().flatten()])
    place = torch.empty_like(order)
    place[order] = torch.arange(num_columns, device=row_at.device)
    return order, place


def bipartite(h: Tensor, around: Neighbourhood, layout: Layout) -> Bipartite:
    """Exchange h, [n_in, F], and lay it out with the rank's edges."""
    halo = around.exchange(h)
    first = h if layout.order is None else h[layout.order]
    return Bipartite(
        torch.cat([first, halo.wait()]),
        layout.edge_index,
        layout.edge_weight,
        layout.num_outputs,
    )
