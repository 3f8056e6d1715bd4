"""From the edges a reader found to a `Graph`: in memory, or on disk where they are too many."""

from pathlib import Path
from typing import Any

from gnndist.data.disk_csr import disk_csr
from gnndist.data.files import must_fit
from gnndist.errors import DataError
from gnndist.graph import Array, Graph

ON_DISK = 1 << 25
"""edges from which the adjacency is built in scratch files"""


def build(
    edges: Array,
    path: Path,
    *,
    num_vertices: int | None = None,
    edge_weight: Array | None = None,
    symmetrize: bool,
    scratch: Path | None = None,
    **fields: Any,
) -> Graph:
    """`Graph.from_edge_index`, with errors that name `path`.

    From `ON_DISK` unweighted edges on the adjacency is built in scratch files and mapped, so that
    memory does not grow with the edges.
    """
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise DataError(f"{path}: edges have shape {edges.shape}: allowed is (2, edges)")
    if num_vertices is None:
        arrays = [a for k in ("features", "labels") if (a := fields.get(k)) is not None]
        num_vertices = len(arrays[0]) if arrays else int(edges.max(initial=-1)) + 1
    must_fit(16 * num_vertices, path, f"a graph of {num_vertices} vertices")
    try:
        if edge_weight is not None or edges.shape[1] < ON_DISK:
            return Graph.from_edge_index(
                edges,
                num_vertices=num_vertices,
                edge_weight=edge_weight,
                symmetrize=symmetrize,
                **fields,
            )
        csr = disk_csr(edges, num_vertices, symmetrize=symmetrize, folder=scratch)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return Graph(
        indptr=csr.indptr,
        indices=csr.indices,
        symmetric=csr.symmetric,
        edge_counts=csr.counts,
        **fields,
    )
