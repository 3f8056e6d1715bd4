"""The way in: a graph, a method, cells."""

from pathlib import Path

from gnndist.errors import ConfigError, DataError
from gnndist.graph import Array, Graph
from gnndist.partitioning.assignment import order_by_assignment
from gnndist.partitioning.cells import Cells, default_cells, order_by_cell
from gnndist.partitioning.kaminpar import KaMinPar
from gnndist.partitioning.ldg import Ldg
from gnndist.partitioning.memory import check_fits
from gnndist.partitioning.metis import Metis
from gnndist.partitioning.problem import Estimate, Partitioner, Problem, Report, silent
from gnndist.partitioning.simple import Natural, Random
from gnndist.partitioning.work import VERTEX_WORK, training_vertices, vertex_weights

DEFAULT = "metis"
METHODS: dict[str, type[Partitioner]] = {
    "metis": Metis,
    "kaminpar": KaMinPar,
    "ldg": Ldg,
    "random": Random,
    "natural": Natural,
}


def partition(
    graph: Graph,
    *,
    cells: int | None = None,
    method: str | None = None,
    seed: int = 0,
    assignment: Array | None = None,
    vertex_work: int = VERTEX_WORK,
    progress: Report = silent,
    scratch: Path | None = None,
) -> Cells:
    """Divide a graph into cells and order its vertices by them.

    Parameters
    ----------
    graph:
        directed or not; loops and the direction of edges do not matter to where cells lie.
    cells:
        how many, 1 to N; default: a power of two from the size (`default_cells`). There may be
        fewer in the answer where a tiny graph leaves some empty.
    method:
        one of `METHODS`; default: `DEFAULT`.
    seed:
        same graph, same seed, same cells.
    assignment:
        [N] integers from 0, your own cell for each vertex, instead of a method. Cells keep the
        order of their numbers, so consecutive numbers should be close.
    vertex_work:
        work of a vertex in units of an edge's; cells balance in-degree + this.
    progress:
        told of progress.
    scratch:
        folder for temporary files, as large as the graph's edges; default: the system's.

    Raises
    ------
    DataError
        the graph has no vertex.
    ConfigError
        unknown method, a number of cells outside 1..N, a negative seed; a method that needs more
        memory than there is.
    """
    n = graph.num_vertices
    if n == 0:
        raise DataError(f"graph {graph.name!r} has no vertices: allowed is 1 or more")
    if seed < 0:
        raise ConfigError(f"seed {seed}: allowed is 0 or more")
    if vertex_work < 0:
        raise ConfigError(f"vertex work {vertex_work}: allowed is 0 or more")
    if assignment is not None:
        return _own_cells(assignment, graph, cells, method, seed, vertex_work)
    method = DEFAULT if method is None else method
    if method not in METHODS:
        raise ConfigError(f"method {method!r}: allowed are {', '.join(METHODS)}")
    cells = default_cells(n) if cells is None else cells
    if not 1 <= cells <= n:
        raise ConfigError(f"{cells} cells: allowed are 1 to {n}, the number of vertices")
    check_fits(method, {name: estimate(graph, name, cells) for name in METHODS})
    problem = Problem(
        graph=graph,
        weight=vertex_weights(graph, vertex_work),
        train=training_vertices(graph),
        cells=cells,
        seed=seed,
        report=progress,
        scratch=scratch,
    )
    order, offsets = order_by_cell(METHODS[method]().assign(problem), cells)
    return Cells(order=order, offsets=offsets, method=method, seed=seed, vertex_work=vertex_work)


def estimate(graph: Graph, method: str = DEFAULT, cells: int | None = None) -> Estimate:
    """What `partition` will need, roughly, beyond the graph itself."""
    entries = graph.num_edges * (1 if graph.symmetric else 2)
    n = graph.num_vertices
    return METHODS[method]().estimate(n, entries, cells or default_cells(n))


def _own_cells(
    assignment: Array, graph: Graph, cells: int | None, method: str | None, seed: int, work: int
) -> Cells:
    if method is not None or cells is not None:
        raise ConfigError(
            f"method {method!r}, {cells} cells with an assignment: allowed is the assignment alone"
        )
    order, offsets = order_by_assignment(assignment, graph.num_vertices)
    return Cells(order=order, offsets=offsets, method="assignment", seed=seed, vertex_work=work)
