"""PyG: its own layers on a torch.sparse CSR matrix, an EdgeIndex, or a plain edge_index."""

import sys
import warnings

import torch
import torch_geometric
from peers.child import claim_stdout, serve
from peers.problem import Problem
from peers.torch_loop import Layers, epoch_of, set_weights
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import GATConv, GCNConv, SAGEConv


def load_adjacency(problem: Problem, form: str) -> Tensor:
    """The graph as `form` has it: ``csr``, ``EdgeIndex`` or ``edge_index``."""
    indptr = torch.from_numpy(problem.array("indptr"))
    indices = torch.from_numpy(problem.array("indices")).long()
    n = len(indptr) - 1
    if form == "csr":
        return torch.sparse_csr_tensor(indptr, indices, torch.ones(len(indices)), (n, n))
    destination = torch.repeat_interleave(torch.arange(n), indptr.diff())
    edge_index = torch.stack([indices, destination])
    if form == "edge_index":
        return edge_index
    # Sorted by destination, its compressed form and that of its transpose kept.
    edges = EdgeIndex(edge_index, sparse_size=(n, n), sort_order="col")
    edges.fill_cache_()
    return edges


def make_model(problem: Problem, adjacency: Tensor) -> Layers:
    features = problem.array("features").shape[1]
    convs: list[nn.Module] = []
    parameters: dict[str, Tensor] = {}
    for layer, (inputs, outputs, heads) in enumerate(problem.shapes(features)):
        if problem.model == "gcn":
            # cached: the normalised adjacency is computed once, as its docs advise here.
            conv = GCNConv(inputs, outputs, cached=True)
            parameters[f"{layer}.weight"] = conv.lin.weight
            parameters[f"{layer}.bias"] = conv.bias
        elif problem.model == "sage":
            conv = SAGEConv(inputs, outputs, aggr="mean")
            parameters[f"{layer}.weight"] = conv.lin_l.weight
            parameters[f"{layer}.self"] = conv.lin_r.weight
            parameters[f"{layer}.bias"] = conv.lin_l.bias
        else:
            conv = GATConv(inputs, outputs, heads)
            parameters[f"{layer}.weight"] = conv.lin.weight
            parameters[f"{layer}.source"] = conv.att_src
            parameters[f"{layer}.target"] = conv.att_dst
            parameters[f"{layer}.bias"] = conv.bias
        convs.append(conv)
    model = Layers(convs, problem, lambda conv, x: conv(x, adjacency))
    set_weights(parameters, problem)
    return model


def main() -> None:
    channel = claim_stdout()
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
    problem = Problem.read(sys.argv[1])
    torch.set_num_threads(int(sys.argv[2]))
    torch.set_default_dtype(getattr(torch, problem.dtype))
    model = make_model(problem, load_adjacency(problem, sys.argv[3]))
    versions = {"torch_geometric": torch_geometric.__version__, "torch": torch.__version__}
    serve(channel, versions, epoch_of(model, problem))


if __name__ == "__main__":
    main()
