"""From a graph to cells: the leaves of a recursive partition, in an order worth storing.

`partition` is the way in. A `Partitioner` puts every vertex into a cell; whatever its method,
consecutive cells lie close together in the graph, so that any run of them is a good part.
"""

from gnndist.partitioning.cells import Cells, default_cells
from gnndist.partitioning.partition import DEFAULT, METHODS, estimate, partition
from gnndist.partitioning.problem import Estimate, Partitioner, Problem, Report, silent

__all__ = [
    "DEFAULT",
    "METHODS",
    "Cells",
    "Estimate",
    "Partitioner",
    "Problem",
    "Report",
    "default_cells",
    "estimate",
    "partition",
    "silent",
]
