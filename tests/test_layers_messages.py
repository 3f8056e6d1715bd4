"""What layers send: sums where their mathematics allows it, plain rows where not, and when."""

from typing import Any

import numpy as np
import pytest
import torch
from layers import IN, even_runs, rank_graph
from threads import run_threads
from torch import Tensor

from gnndist import nn
from gnndist.comm import Comm
from gnndist.graph import Graph
from gnndist.rankgraph import RankGraph

OUT, HEADS = 3, 2
FLOAT64 = 8


def star() -> Graph:
    """Vertex 0 with an edge from each of 1..9: as plain rows, five from the second half of ten;
    as a sum, one."""
    rng = np.random.default_rng(0)
    edges = np.stack([np.arange(1, 10), np.zeros(9, np.int64)])
    return Graph.from_edge_index(
        edges, num_vertices=10, features=rng.standard_normal((10, IN)).astype(np.float32)
    )


def sent(comm: Comm, layer: torch.nn.Module, constant: bool) -> tuple[int, int]:
    """Bytes sent by this rank: in a second forward pass, and backward."""
    graph = star()
    view = rank_graph(comm, graph, even_runs(10, 2))
    x = torch.from_numpy(graph.features).double()[view.columns]
    if constant:
        view.constant = x
    else:
        x.requires_grad_()
    layer(view, x)
    comm.meter.take()
    out = layer(view, x)
    forward = comm.meter.take().bytes_sent
    out.sum().backward()
    return forward, comm.meter.take().bytes_sent


@pytest.mark.parametrize(
    ("layer", "messages", "width", "exchanges"),
    [
        (lambda: nn.GCNConv(IN, OUT), 1, OUT, 1),
        (lambda: nn.GCNConv(IN, 9), 1, IN, 1),
        (lambda: nn.SAGEConv(IN, OUT), 1, OUT, 1),
        (lambda: nn.SAGEConv(IN, OUT, "sum"), 1, OUT, 1),
        (lambda: nn.GINConv(torch.nn.Linear(IN, OUT)), 1, IN, 1),
        (lambda: nn.SGConv(IN, OUT, K=3), 1, OUT, 3),
        (lambda: nn.APPNP(K=2, alpha=0.1), 1, IN, 2),
        (lambda: nn.SAGEConv(IN, OUT, "max"), 5, IN, 1),
        (lambda: nn.GATConv(IN, OUT, heads=HEADS), 5, HEADS * OUT, 1),
        (lambda: nn.GATv2Conv(IN, OUT, heads=HEADS), 5, HEADS * OUT, 1),
    ],
)
def test_messages(layer: Any, messages: int, width: int, exchanges: int) -> None:
    # The second rank's five vertices are read by the first; nothing goes the other way.
    first, second = run_threads(sent, 2, layer().double(), False)
    wanted = messages * width * exchanges * FLOAT64
    assert second == (wanted, 0)
    assert first == (0, wanted)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.GCNConv(IN, OUT),
        lambda: nn.SAGEConv(IN, OUT),
        lambda: nn.SAGEConv(IN, OUT, "max"),
        lambda: nn.GINConv(torch.nn.Linear(IN, OUT)),
        lambda: nn.SGConv(IN, OUT, K=3),
        lambda: nn.GATConv(IN, OUT, heads=HEADS),
        lambda: nn.GATv2Conv(IN, OUT, heads=HEADS),
    ],
)
def test_a_constant_input_is_sent_once(layer: Any) -> None:
    for bytes_sent in run_threads(sent, 2, layer().double(), True):
        assert bytes_sent == (0, 0)


class Log:
    """A Comm that notes when it was asked to send, when waited for, and what was in between."""

    def __init__(self, comm: Comm, events: list[str]) -> None:
        self._comm, self.events = comm, events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def start(self, sends: list[Tensor], receives: list[Tensor]) -> Any:
        self.events.append("start")
        pending, events = self._comm.start(sends, receives), self.events

        class Logged:
            def wait(self) -> None:
                events.append("wait")
                pending.wait()

        return Logged()


def noting(events: list[str], sizes: dict[int, str], kernels: Any) -> Any:
    """The kernels; they note which side's sources they work on."""

    def forward(csr: Any, *inputs: Any, **options: Any) -> Any:
        events.append(sizes[csr.num_cols])
        return kernels.forward(csr, *inputs, **options)

    def backward(csr: Any, *inputs: Any, **options: Any) -> Any:
        events.append(f"{sizes[csr.num_cols]} backward")
        return kernels.backward(csr, *inputs, **options)

    return type(kernels)(forward, backward)


def events_of(comm: Comm, kind: str) -> list[str]:
    events: list[str] = []
    graph = star()
    view: RankGraph = rank_graph(Log(comm, events), graph, np.array([0, 4, 10]))
    layer = getattr(nn, kind)(IN, OUT, heads=HEADS).double()
    sizes = {view.num_columns: "owned", 6 if comm.rank == 0 else 0: "halo"}
    kernels = noting(events, sizes, layer.kernels)
    noted = type(f"Noting{kind}", (type(layer),), {"kernels": kernels})
    layer.__class__ = noted
    x = torch.from_numpy(graph.features).double()[view.columns].requires_grad_()
    layer(view, x).sum().backward()
    return events


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv"])
def test_attention_exchanges_beside_its_work_on_owned_neighbours(kind: str) -> None:
    for events in run_threads(events_of, 2, kind):
        assert events == [
            "start",
            "owned",
            "wait",
            "halo",
            "halo backward",
            "start",
            "owned backward",
            "wait",
        ]
