"""Partitioners compared: halo, balance, time and memory on real and synthetic graphs.

    python benchmarks/partitioners.py --root DATA
    python benchmarks/partitioners.py synthetic:products@0.2 --methods metis,kaminpar,ldg

Each run has a process of its own. `halo` is the sum over ranks of remote vertices read ÷ vertices;
`edges` the busiest rank's edges ÷ the mean, `train` likewise its training vertices. `memory` is
what partitioning needed beyond the graph (a library's process included, files that it maps too),
`direct` METIS asked for just that many parts.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from gnndist import Graph
from gnndist.data import load
from gnndist.partitioning import METHODS, partition
from gnndist.partitioning.pattern import undirected
from gnndist.partitioning.work import vertex_weights
from gnndist.plan.runs import cut_runs

RANKS = (2, 4, 8, 16)
GRAPHS = ("npz/wordnet30.npz", "coauthor-phy", "metis/mdual.graph.gz", "synthetic:arxiv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("graphs", nargs="*", default=GRAPHS)
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--methods", default=",".join([*METHODS, "direct"]))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.graphs[0], options.methods, options.root)))
        return
    columns = " ".join(f"{f'halo@{r}':>8} {f'edges@{r}':>9} {f'train@{r}':>9}" for r in RANKS)
    print(f"{'graph':<24} {'method':<9} {columns} {'seconds':>8} {'memory MB':>10}")
    for graph in options.graphs:
        for method in options.methods.split(","):
            found = in_a_process(graph, method, options.root)
            name = Path(graph).name[:24]
            if isinstance(found, str):
                print(f"{name:<24} {method:<9} {found}", flush=True)
                continue
            figures = " ".join(
                f"{halo:>8.4f} {edges:>9.3f} {train:>9.2f}"
                for halo, edges, train in zip(
                    found["halo"], found["edges"], found["train"], strict=True
                )
            )
            print(
                f"{name:<24} {method:<9} {figures} {found['seconds']:>8.1f} "
                f"{found['memory'] / 1e6:>10.0f}",
                flush=True,
            )


def in_a_process(graph: str, method: str, root: Path) -> dict[str, Any] | str:
    """`measure` in a process of its own, watched from here; its last words if it fails."""
    command = [sys.executable, __file__, graph, "--methods", method, "--one", "--root", str(root)]
    process = subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline() == "":
        return process.communicate()[1].strip().splitlines()[-1]
    watched = psutil.Process(process.pid)
    before = watched.memory_info().rss
    peak, stop = [before], threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            try:
                family = [watched, *watched.children(recursive=True)]
                peak[0] = max(peak[0], sum(p.memory_info().rss for p in family))
            except psutil.NoSuchProcess:
                pass

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.stdout.readline()
    stop.set()
    watcher.join()
    out, error = process.communicate()
    if process.returncode:
        return error.strip().splitlines()[-1]
    return {**json.loads(out.splitlines()[-1]), "memory": peak[0] - before}


def measure(name: str, method: str, root: Path) -> dict[str, Any]:
    path = root / name
    graph = load(path if path.is_file() else name, root=root)
    print("loaded", flush=True)
    start = time.monotonic()
    parts = direct(graph) if method == "direct" else merged(graph, method)
    seconds = time.monotonic() - start
    print("partitioned", flush=True)
    degree = np.diff(graph.indptr)
    train = np.zeros(graph.num_vertices)
    train[graph.splits.get("train", np.empty(0, np.int64))] = 1
    return {
        "halo": [halo(graph, part) / graph.num_vertices for part in parts],
        "edges": [imbalance(part, degree) for part in parts],
        "train": [imbalance(part, train) for part in parts],
        "seconds": seconds,
    }


def merged(graph: Graph, method: str) -> list[NDArray[np.int64]]:
    """Ranks of each vertex, for each number of ranks, from one division into cells."""
    cells = partition(graph, method=method)
    work = np.add.reduceat(vertex_weights(graph)[cells.order], cells.offsets[:-1])
    parts = []
    for ranks in RANKS:
        part = np.empty(graph.num_vertices, np.int64)
        runs = cut_runs(cells.offsets, work, ranks)
        part[cells.order] = np.repeat(np.arange(ranks), np.diff(runs))
        parts.append(part)
    return parts


def direct(graph: Graph) -> list[NDArray[np.int64]]:
    """METIS asked for each number of ranks by itself."""
    import pymetis

    indptr, indices = undirected(graph)
    adjacency = pymetis.CSRAdjacency(adj_starts=indptr, adjacent=indices)
    weight = vertex_weights(graph)
    return [
        np.asarray(pymetis.part_graph(ranks, adjacency=adjacency, vweights=weight)[1], np.int64)
        for ranks in RANKS
    ]


def imbalance(part: NDArray[np.int64], amount: NDArray[np.float64]) -> float:
    total = np.bincount(part, amount)
    return float(total.max() / total.mean()) if total.any() else 1.0


def halo(graph: Graph, part: NDArray[np.int64]) -> int:
    """Remote vertices read, summed over ranks."""
    total = 0
    row_part = np.repeat(part.astype(np.uint8), np.diff(graph.indptr))
    for rank in range(int(part.max()) + 1):
        read = np.zeros(graph.num_vertices, bool)
        read[graph.indices[row_part == rank]] = True
        total += int(np.count_nonzero(read & (part != rank)))
    return total


if __name__ == "__main__":
    main()
