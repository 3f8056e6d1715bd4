"""What a vertex costs in edges, for one model on this machine."""

import numpy as np

from gnndist.inspection.prediction import Inspection

PER_VERTEX = ("dense", "elementwise")


def vertex_work(found: Inspection) -> float | None:
    """Work of a vertex in units of an edge's, as `gnndist partition --vertex-work` takes it.

    Dense products and elementwise operations go by vertices, sparse products by edges; their
    seconds are those predicted from measured rates. None without a model or without edges.
    """
    if found.model is None:
        return None
    work = found.model.epoch.work_s
    by_vertex = sum(float(np.sum(work[kind])) for kind in PER_VERTEX) / float(found.owned.sum())
    by_edge = float(np.sum(work["sparse"])) / max(float(found.edges.sum()), 1.0)
    return by_vertex / by_edge if by_edge > 0 else None
