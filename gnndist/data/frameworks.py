"""Graphs that live in another library: PyTorch Geometric's `Data` and DGL's `DGLGraph`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gnndist.data.features import as_features
from gnndist.data.labels import as_labels
from gnndist.data.validation import validate
from gnndist.errors import DataError
from gnndist.extras import need
from gnndist.graph import Array, Graph

MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}


def from_pyg(
    data: Any,
    *,
    edge_weight: str | None = "edge_weight",
    split_index: int = 0,
    symmetrize: bool = False,
    **fields: Any,
) -> Graph:
    """A graph from a ``torch_geometric.data.Data``.

    Read are `x`, `edge_index` (or `adj_t`, a torch sparse tensor), `y`, the masks and the weights;
    anything else in `data` is left out.

    Parameters
    ----------
    edge_weight:
        the attribute with the edges' weights, [E] or [E, 1], if `data` has it; None: no weights.
    split_index:
        which column of masks that hold several splits.
    symmetrize:
        add the reverse of every edge that lacks it.
    **fields:
        other fields of `Graph`, which go before what `data` says; so does ``task=`` before what
        the labels look like (integers: single-label; several columns of 0 and 1: multi-label).

    Raises
    ------
    DataError
        no edges, several vertex types, arrays whose shapes do not fit.
    GnndistError
        torch_geometric is not installed.
    """
    pyg = need("torch_geometric.data", "pyg", "Graph.from_pyg")
    if not isinstance(data, pyg.Data):
        raise DataError(
            f"data is {type(data).__name__}: allowed is torch_geometric.data.Data (a graph of "
            "several types through its to_homogeneous())"
        )
    edge_index, weight = _pyg_edges(data, edge_weight)
    vertices = int(data.num_nodes)
    masks = {
        split: mask
        for split, name in MASKS.items()
        if (mask := getattr(data, name, None)) is not None
    }
    return _graph(
        edge_index,
        vertices,
        weight,
        features=getattr(data, "x", None),
        labels=getattr(data, "y", None),
        masks=masks,
        split_index=split_index,
        symmetrize=symmetrize,
        fields=fields,
        source="Data",
    )


def from_dgl(
    graph: Any,
    *,
    features: str | None = "feat",
    labels: str | None = "label",
    edge_weight: str | None = None,
    split_index: int = 0,
    symmetrize: bool = False,
    **fields: Any,
) -> Graph:
    """A graph from a ``dgl.DGLGraph`` of one vertex and one edge type.

    Read are `ndata[features]`, `ndata[labels]`, the masks `ndata["train_mask"]`, `"val_mask"` and
    `"test_mask"`, and `edata[edge_weight]`; anything else is left out.

    Parameters
    ----------
    features, labels, edge_weight:
        names in `ndata` and `edata`; None: none. Features and labels that are not there are left
        out, weights that are not there are an error.
    split_index, symmetrize, **fields:
        as in `from_pyg`.

    Raises
    ------
    DataError
        not a DGLGraph, several types, a block, arrays whose shapes do not fit.
    GnndistError
        dgl is not installed.
    """
    dgl = need("dgl", "dgl", "Graph.from_dgl")
    if not isinstance(graph, dgl.DGLGraph):
        raise DataError(f"graph is {type(graph).__name__}: allowed is dgl.DGLGraph")
    if len(graph.ntypes) != 1 or len(graph.etypes) != 1:
        raise DataError(
            f"graph has vertex types {graph.ntypes} and edge types {graph.etypes}: allowed is one "
            "of each (dgl.to_homogeneous)"
        )
    weight = None
    if edge_weight is not None:
        if edge_weight not in graph.edata:
            has = ", ".join(graph.edata) or "nothing"
            raise DataError(f"edge_weight {edge_weight!r} is not in edata, which has {has}")
        weight = graph.edata[edge_weight]
    ndata = graph.ndata
    return _graph(
        np.stack([_array(end) for end in graph.edges()]),
        int(graph.num_nodes()),
        weight,
        features=ndata.get(features),
        labels=ndata.get(labels),
        masks={split: ndata[name] for split, name in MASKS.items() if name in ndata},
        split_index=split_index,
        symmetrize=symmetrize,
        fields=fields,
        source="DGLGraph",
    )


def _pyg_edges(data: Any, edge_weight: str | None) -> tuple[Array, Any]:
    """[2, E] sources → destinations, and the weights if there are any."""
    weight = None if edge_weight is None else getattr(data, edge_weight, None)
    if getattr(data, "edge_index", None) is not None:
        return _array(data.edge_index), weight
    adjacency = getattr(data, "adj_t", None)
    if adjacency is None:
        raise DataError("Data has neither edge_index nor adj_t: one of them is needed")
    if not hasattr(adjacency, "layout"):  # torch_sparse's class
        row, column, value = adjacency.coo()
    else:
        matrix = adjacency.to_sparse_coo().coalesce()
        (row, column), value = matrix.indices(), matrix.values()
        if bool((value == 1).all()):
            value = None
    return np.stack([_array(column), _array(row)]), value if weight is None else weight


def _graph(
    edge_index: Array,
    vertices: int,
    weight: Any,
    *,
    features: Any,
    labels: Any,
    masks: Mapping[str, Any],
    split_index: int,
    symmetrize: bool,
    fields: dict[str, Any],
    source: str,
) -> Graph:
    found: dict[str, Any] = {"name": source.lower()}
    if features is not None:
        found["features"] = as_features(
            _rows(_array(features), vertices, source, "features"), source
        )
    if labels is not None:
        values = _rows(_array(labels), vertices, source, "labels")
        found |= _labels(values, fields.get("task"), source)
    if masks:
        found["splits"] = {
            split: _chosen(_rows(_array(mask), vertices, source, MASKS[split]), split_index, split)
            for split, mask in masks.items()
        }
    if weight is not None:
        weight = _array(weight)
        weight = weight[:, 0] if weight.ndim == 2 and weight.shape[1] == 1 else weight
    graph = Graph.from_edge_index(
        edge_index,
        num_vertices=vertices,
        edge_weight=weight,
        symmetrize=symmetrize,
        **found | fields,
    )
    # Without splits there is something to add before it can be trained on.
    return validate(graph, source) if graph.splits else graph


def _labels(values: Array, task: str | None, source: str) -> dict[str, Any]:
    """Labels as a `Graph` keeps them: of the task that is asked for, or the one they look like."""
    if task not in ("multi-label", "regression"):
        labels, task, width = as_labels(values, source)
        return {"labels": labels, "task": task, "num_classes": width}
    values = values.reshape(len(values), -1).astype(np.float32)
    return {"labels": values, "task": task, "num_classes": values.shape[1]}


def _array(tensor: Any) -> Array:
    """A tensor's numbers; bfloat16, which numpy lacks, as float32."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        tensor = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
        return np.asarray(tensor.numpy())
    return np.asarray(tensor)


def _rows(values: Array, vertices: int, source: str, what: str) -> Array:
    if values.ndim == 0 or len(values) != vertices:
        raise DataError(
            f"{source}: {what} have shape {values.shape}: allowed is a row for each of "
            f"{vertices} vertices"
        )
    return values


def _chosen(mask: Array, split_index: int, split: str) -> Array:
    """Ids where a mask, or column `split_index` of several, is set."""
    if mask.ndim == 2:
        if not 0 <= split_index < mask.shape[1]:
            raise DataError(
                f"split_index = {split_index}: {split} has {mask.shape[1]} splits, allowed are "
                f"0 to {mask.shape[1] - 1}"
            )
        mask = mask[:, split_index]
    return np.flatnonzero(mask).astype(np.int64)
