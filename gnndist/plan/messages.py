"""What one rank asks of one other: the messages that carry the edges between them.

The receiver knows its cut edges, so it decides. It keeps how received messages add into its rows
(its columns of R) and tells the sender how to form them (the sender's rows of S).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnndist.plan.cover import minimum_vertex_cover
from gnndist.plan.matrix import Ids, Matrix


class CutEdges(NamedTuple):
    """Edges from one other rank's vertices to this rank's rows."""

    row: Ids
    """[E] position among this rank's rows"""
    column: Ids
    """[E] global id of the source"""
    values: NDArray[np.float64] | None
    """[E]"""


class Request(NamedTuple):
    """The messages for a set of cut edges."""

    send: Matrix
    """one row a message, columns are global ids of the sender's vertices"""
    row: Ids
    """[K] R's entries: the row that takes …"""
    message: Ids
    """[K] … this message …"""
    values: NDArray[np.float64] | None
    """[K] … times this"""
    plain: bool
    """every message is one vertex's features as they are"""


def plain_request(edges: CutEdges, num_vertices: int) -> Request:
    """One message a distinct source: its features as they are. Needed by non-linear layers."""
    sources, message = np.unique(edges.column, return_inverse=True)
    send = Matrix(
        indptr=np.arange(len(sources) + 1, dtype=np.int64),
        indices=sources,
        values=None,
        num_columns=num_vertices,
    )
    return Request(send, edges.row, message.astype(np.int64), edges.values, plain=True)


def covering_request(edges: CutEdges, num_vertices: int) -> Request:
    """As few messages as carry the edges: plain rows and sums formed at the sender.

    Exact for linear aggregations only. The messages are the members of a minimum vertex cover:
    first the sources sent as they are, then a sum for each row in the cover over those of its
    sources that are not sent.
    """
    rows, r = np.unique(edges.row, return_inverse=True)
    sources, c = np.unique(edges.column, return_inverse=True)
    cover = minimum_vertex_cover(r, c, len(rows), len(sources))
    sent = cover.columns[c]
    num_plain = int(cover.columns.sum())
    plain_message = np.cumsum(cover.columns) - 1
    # A row of the cover whose sources are all sent anyway would be an empty sum.
    summed_rows = np.unique(r[~sent])
    sum_message = np.full(len(rows), -1)
    sum_message[summed_rows] = num_plain + np.arange(len(summed_rows))

    num_messages = num_plain + len(summed_rows)
    message = np.concatenate([np.arange(num_plain), sum_message[r[~sent]]])
    column = np.concatenate([sources[cover.columns], edges.column[~sent]])
    weighted = edges.values is not None
    send_values = receive_values = None
    if edges.values is not None:
        send_values = np.concatenate([np.ones(num_plain), edges.values[~sent]])
        receive_values = np.concatenate([edges.values[sent], np.ones(len(summed_rows))])
    send = Matrix.from_entries(
        message, column, send_values if weighted else None, (num_messages, num_vertices)
    )
    return Request(
        send,
        np.concatenate([edges.row[sent], rows[summed_rows]]),
        np.concatenate([plain_message[c[sent]], sum_message[summed_rows]]),
        receive_values,
        plain=False,
    )
