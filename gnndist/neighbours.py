"""The edges of a rank's rows one by one, for layers that are not linear in their neighbours.

Such a layer (attention, max) needs every halo row as it is. It works on its owned neighbours while
those travel and on the halo when they are there; how the two halves make one result is its own
mathematics.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gnndist.buffers import BufferPool
from gnndist.halo import Halo
from gnndist.kernels import CSR
from gnndist.operators import Operators


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbours:
    """The edges of n_out rows that come from one side: from s owned vertices, or s halo ones."""

    csr: CSR
    """n_out × s, no values"""
    destinations: Tensor
    """[n_out] int64 global ids"""
    sources: Tensor
    """[s] int64 global ids"""

    @cached_property
    def row(self) -> Tensor:
        """[E] int64: the row that each edge enters."""
        rows = torch.arange(self.csr.num_rows, device=self.csr.device)
        return torch.repeat_interleave(rows, self.csr.indptr.diff(), output_size=self.csr.nnz)

    @cached_property
    def column(self) -> Tensor:
        """[E] int64: the source that each edge leaves."""
        return self.csr.indices.long()


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbourhood:
    """All edges of a rank's rows, with the exchange that brings the halo's rows."""

    operators: Operators
    owned: Neighbours
    halo: Neighbours
    buffers: BufferPool

    @property
    def alone(self) -> bool:
        """Neither sends nor receives: the rank's rows have owned neighbours only."""
        exchange = self.operators.exchange
        return exchange.num_sent == 0 and exchange.num_received == 0

    def exchange(self, h: Tensor) -> Halo:
        """Start to exchange h, [n_in, F]: ``wait()`` gives the halo's rows, [halo, F].

        Every rank that is not `alone` has to call it, and has to wait even for no rows: gradients
        of the rows it sends come back through it.
        """
        return Halo(h, self.operators, self.buffers)
