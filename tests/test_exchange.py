"""The communication Functions: adjoint identities, gradcheck and message counts."""

from typing import Any

import numpy as np
import pytest
import torch
from processes import run_ranks
from threads import run_threads

from gnndist.comm import Comm
from gnndist.operators import Aggregation
from gnndist.plan import Matrix, RankRows
from gnndist.rankgraph import RankGraph
from gnndist.savings import Savings

CUTS = {
    1: [0, 30],
    2: [0, 11, 30],
    3: [0, 11, 11, 30],  # the middle rank owns nothing
    4: [0, 3, 12, 20, 30],
}
AGGREGATIONS = [
    Aggregation(norm="sum"),
    Aggregation(norm="mean", self_loops=True),
    Aggregation(norm="symmetric", self_loops=True, weighted=False),
]


def rows_of(comm: Comm, seed: int, cuts: list[int]) -> RankRows:
    """A directed weighted graph of 30 vertices; the last six have no edge to the first eleven."""
    rng = np.random.default_rng(seed)
    dense = rng.uniform(0.5, 1.5, (30, 30)) * (rng.random((30, 30)) < 0.15)
    dense[:11, 24:] = dense[24:, :11] = 0
    start, stop = cuts[comm.rank], cuts[comm.rank + 1]
    mine = dense[start:stop]
    row, column = mine.nonzero()
    return RankRows(
        rank=comm.rank,
        runs=np.array(cuts, np.int64),
        rows=np.arange(start, stop),
        adjacency=Matrix.from_entries(row, column, mine[row, column], (stop - start, 30)),
    )


def adjoint(comm: Comm, seed: int, cover: bool) -> list[tuple[float, float]]:
    """⟨F x, y⟩ and ⟨x, F* y⟩, each summed over ranks, for every Function."""
    graph = RankGraph.create(
        rows_of(comm, seed, CUTS[comm.world]), comm, savings=Savings(cover=cover)
    )
    generator = torch.Generator().manual_seed(comm.rank)
    sides = []

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    def both(x: torch.Tensor, y: torch.Tensor, fx: torch.Tensor) -> None:
        (dx,) = torch.autograd.grad(fx, x, y)
        total = torch.stack([(fx * y).sum(), (x * dx).sum()]).detach()
        comm.all_reduce(total)
        sides.append(tuple(total.tolist()))

    for aggregation in AGGREGATIONS:
        x = random(graph.num_columns, 3).requires_grad_()
        both(x, random(graph.num_rows, 3), graph.aggregate(x, aggregation))
    x = random(graph.num_columns, 3).requires_grad_()
    gathered = graph.bipartite(x).features
    both(x, random(*gathered.shape), gathered)
    return sides


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("cover", [True, False], ids=["covered", "plain"])
def test_adjoint_identity(world: int, cover: bool) -> None:
    for sides in run_threads(adjoint, world, 0, cover):
        for forward, backward in sides:
            assert abs(forward) > 1e-3
            assert forward == pytest.approx(backward, rel=1e-12)


@pytest.mark.parametrize("world", [2, 3])
def test_adjoint_identity_over_gloo(world: int) -> None:
    for sides in run_ranks(adjoint, world, 1, True):
        for forward, backward in sides:
            assert forward == pytest.approx(backward, rel=1e-12)


def checked_gradients(comm: Comm) -> bool:
    """gradcheck of a rank alone: its numerical differences need the others to stand still."""
    graph = RankGraph.create(rows_of(comm, 2, CUTS[1]), comm)
    x = torch.randn(graph.num_columns, 2, dtype=torch.float64, requires_grad=True)
    return all(
        torch.autograd.gradcheck(lambda h, a=a: graph.aggregate(h, a), (x,)) for a in AGGREGATIONS
    )


def test_gradcheck() -> None:
    assert run_threads(checked_gradients, 1) == [True]


def jacobians(comm: Comm, cover: bool) -> Any:
    """Rows of dY/dX on every rank, by pushing unit gradients through the backward exchange."""
    graph = RankGraph.create(rows_of(comm, 3, CUTS[comm.world]), comm, savings=Savings(cover=cover))
    aggregation = AGGREGATIONS[1]
    x = torch.zeros(graph.num_columns, 1, dtype=torch.float64, requires_grad=True)
    y = graph.aggregate(x, aggregation)
    columns = []
    for vertex in range(30):
        unit = torch.zeros_like(y)
        if graph.part.start <= vertex < graph.part.stop:
            unit[vertex - graph.part.start] = 1
        (gradient,) = torch.autograd.grad(y, x, unit, retain_graph=True)
        columns.append(gradient.flatten())
    return torch.stack(columns, dim=1).numpy()


@pytest.mark.parametrize("cover", [True, False], ids=["covered", "plain"])
def test_jacobian_is_the_same_on_any_number_of_ranks(cover: bool) -> None:
    one, *others = (np.concatenate(run_threads(jacobians, world, cover)) for world in (1, 2, 3, 4))
    for other in others:
        np.testing.assert_allclose(other, one, rtol=1e-13, atol=1e-15)


def traffic(comm: Comm, cover: bool) -> tuple[int, int, int]:
    graph = RankGraph.create(rows_of(comm, 0, CUTS[comm.world]), comm, savings=Savings(cover=cover))
    graph.aggregate(torch.ones(graph.num_columns, 5, dtype=torch.float64), AGGREGATIONS[0])
    plan = graph.plan(cover=cover)
    peers = int((plan.send_counts > 0).sum())
    assert comm.meter.messages_sent == peers
    assert comm.meter.bytes_sent == int(plan.send_counts.sum()) * 5 * 8
    return comm.meter.bytes_sent, peers, int(plan.receive_counts.sum())


def test_only_ranks_with_messages_for_each_other_talk() -> None:
    covered, plain = run_threads(traffic, 4, True), run_threads(traffic, 4, False)
    assert sum(b for b, _, _ in covered) < sum(b for b, _, _ in plain)
    empty = run_threads(traffic, 3, True)[1]
    assert empty == (0, 0, 0)
