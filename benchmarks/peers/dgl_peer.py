"""DGL 1.1.3: its own layers on a graph that has its formats built beforehand."""

import os
import sys

os.environ.setdefault("DGLBACKEND", "pytorch")

import dgl
import torch
from dgl.nn.pytorch import GATConv, GraphConv, SAGEConv
from peers.child import claim_stdout, serve
from peers.problem import Problem
from peers.torch_loop import Layers, epoch_of, set_weights
from torch import Tensor, nn


def load_graph(problem: Problem) -> dgl.DGLGraph:
    """The graph with 32-bit ids; with self-loops where the model is defined with them."""
    indptr, indices = problem.array("indptr"), problem.array("indices")
    n = len(indptr) - 1
    source = torch.from_numpy(indices)
    destination = torch.repeat_interleave(
        torch.arange(n, dtype=source.dtype), torch.from_numpy(indptr).diff()
    )
    graph = dgl.graph((source, destination), num_nodes=n)
    if problem.model != "sage":
        graph = dgl.add_self_loop(dgl.remove_self_loop(graph))
    graph.create_formats_()
    return graph


def make_model(problem: Problem, graph: dgl.DGLGraph) -> Layers:
    features = problem.array("features").shape[1]
    convs: list[nn.Module] = []
    parameters: dict[str, Tensor] = {}
    for layer, (inputs, outputs, heads) in enumerate(problem.shapes(features)):
        if problem.model == "gcn":
            conv = GraphConv(inputs, outputs, norm="both", allow_zero_in_degree=True)
            # GraphConv keeps its weight as [in, out].
            parameters[f"{layer}.weight"] = conv.weight.T
        elif problem.model == "sage":
            conv = SAGEConv(inputs, outputs, "mean")
            parameters[f"{layer}.weight"] = conv.fc_neigh.weight
            parameters[f"{layer}.self"] = conv.fc_self.weight
        else:
            conv = GATConv(inputs, outputs, heads)
            parameters[f"{layer}.weight"] = conv.fc.weight
            parameters[f"{layer}.source"] = conv.attn_l
            parameters[f"{layer}.target"] = conv.attn_r
        bias = conv.fc_self.bias if problem.model == "sage" else conv.bias
        parameters[f"{layer}.bias"] = bias
        convs.append(conv)
    model = Layers(convs, problem, lambda conv, x: conv(graph, x).flatten(1))
    set_weights(parameters, problem)
    return model


def main() -> None:
    channel = claim_stdout()
    problem = Problem.read(sys.argv[1])
    torch.set_num_threads(int(sys.argv[2]))
    torch.set_default_dtype(getattr(torch, problem.dtype))
    model = make_model(problem, load_graph(problem))
    versions = {"dgl": dgl.__version__, "torch": torch.__version__}
    serve(channel, versions, epoch_of(model, problem))


if __name__ == "__main__":
    main()
