"""gnndist against DGL and PyG: the same graph, model, weights, data type and threads.

Every contender is a child process that has loaded the problem and waits; this process tells one
after the other to run one epoch (forward, backward, Adam step), round after round, so that
whatever slows the machine down for a while slows all of them. Medians are compared. Without
dropout all must compute the same losses from the same first weights.

    python benchmarks/compare_peers.py --graph synthetic:arxiv --json peers.json
"""

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil
from peers.contender import KEEP_MEMORY, Contender, Entry
from peers.problem import Problem
from peers.report import Section, ratios, show_ratios, show_section
from rich.console import Console

from gnndist.data import load
from gnndist.graph import Graph
from gnndist.launch import worker_environment
from gnndist.store import Store, write_store

SETTLE_S = 0.3
"""idle time before an epoch: threads of the contender before it stop spinning"""
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SHAPES = {"gcn": (3, 256, 1), "sage": (3, 256, 1), "gat": (2, 256, 4)}
"""layers, hidden width and heads by model"""


@click.command(help=__doc__, context_settings={"max_content_width": 100})
@click.option("--graph", default="synthetic:arxiv", show_default=True, help="what gnndist loads")
@click.option("--models", default="gcn,sage,gat", show_default=True)
@click.option("--dropout", default="0.5,0", show_default=True, help="rates, each a comparison")
@click.option(
    "--peers",
    default="dgl,pyg-csr,pyg-edge_index",
    show_default=True,
    help="of dgl, pyg-csr, pyg-EdgeIndex, pyg-edge_index",
)
@click.option("--settings", default="installed,best", show_default=True, help="of the peers")
@click.option("--ranks", default="1,2,4", show_default=True, help="of gnndist, each a contender")
@click.option("--threads", default=0, help="of a contender in all  [this machine's cores]")
@click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32")
@click.option("--warmup", default=2, show_default=True, help="epochs before the timed ones")
@click.option("--epochs", default=5, show_default=True, help="timed")
@click.option("--peer-python", default=None, help="interpreter of the peers  [this one]")
@click.option("--seed", default=0, show_default=True, help="of graph and first weights")
@click.option("--cell-order", is_flag=True, help="give the peers the store's vertex order too")
@click.option("--json", "output", type=click.Path(path_type=Path), help="all figures go here")
def main(
    graph: str,
    models: str,
    dropout: str,
    peers: str,
    settings: str,
    ranks: str,
    threads: int,
    dtype: str,
    warmup: int,
    epochs: int,
    peer_python: str | None,
    seed: int,
    cell_order: bool,
    output: Path | None,
) -> None:
    console = Console(width=None if sys.stdout.isatty() else 110)
    threads = threads or len(os.sched_getaffinity(0))
    entries = [
        *peer_entries(peers.split(","), settings.split(","), threads, peer_python),
        *(gnndist_entry(int(count), threads) for count in ranks.split(",") if count),
    ]
    sections = []
    with tempfile.TemporaryDirectory(prefix="compare-peers-") as folder:
        loaded, store = prepare(graph, Path(folder), seed, console)
        if cell_order:
            loaded = in_order_of(loaded, store)
        for model in models.split(","):
            for rate in dropout.split(","):
                layers, hidden, heads = SHAPES[model]
                problem = Problem(
                    folder=str(Path(folder) / f"{model}-{rate}"),
                    model=model,  # type: ignore[arg-type]
                    dropout=float(rate),
                    hidden=hidden,
                    layers=layers,
                    heads=heads,
                    classes=loaded.num_classes,
                    lr=0.01,
                    dtype=dtype,  # type: ignore[arg-type]
                    seed=seed,
                    store=str(store.path),
                )
                problem.write(loaded)
                section = compare(problem, entries, warmup, epochs, console)
                show_section(section, console)
                sections.append(section)
    found = ratios(sections)
    show_ratios(found, console)
    if output is not None:
        result = {
            "machine": machine(),
            "graph": {"name": graph, "vertices": loaded.num_vertices, "edges": loaded.num_edges},
            "cell_order": cell_order,
            "sections": [s.as_dict() for s in sections],
            "ratios": found,
        }
        output.write_text(json.dumps(result, indent=1))
    if any(s.losses_agree is False for s in sections):
        raise SystemExit("contenders disagree about a loss")


def prepare(source: str, folder: Path, seed: int, console: Console) -> tuple[Graph, Store]:
    """The graph and its store."""
    start = time.perf_counter()
    graph = load(source, seed=seed)
    store = write_store(graph, folder / "store", seed=seed)
    console.print(
        f"{source}: {graph.num_vertices:,} vertices, {graph.num_edges:,} edges; "
        f"loaded and stored in {time.perf_counter() - start:.1f} s"
    )
    return graph, store


def in_order_of(graph: Graph, store: Store) -> Graph:
    """The graph with its vertices renumbered as in the store."""
    original = store.original_ids(0, store.num_vertices)
    new = np.empty_like(original)
    new[original] = np.arange(len(original))
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    assert graph.features is not None
    assert graph.labels is not None
    return Graph.from_edge_index(
        np.stack([new[graph.indices], new[rows]]),
        num_vertices=graph.num_vertices,
        features=np.asarray(graph.features)[original],
        labels=np.asarray(graph.labels)[original],
        num_classes=graph.num_classes,
        splits={k: np.sort(new[v]) for k, v in graph.splits.items()},
    )


def peer_entries(
    peers: list[str], settings: list[str], threads: int, python: str | None
) -> Iterator[Entry]:
    """Every peer under every setting."""
    for peer in filter(None, peers):
        name, _, form = peer.partition("-")
        for setting in settings:
            yield Entry(
                key=f"{peer}/{setting}",
                module=f"peers.{name}_peer",
                arguments=(form,) if form else (),
                threads=threads,
                environment=tuple(KEEP_MEMORY.items()) if setting == "best" else (),
                **({"python": python} if python else {}),
            )


def gnndist_entry(ranks: int, threads: int) -> Entry:
    """gnndist on `ranks` ranks that share `threads`, in its launcher's environment."""
    return Entry(
        key=f"gnndist/{ranks}",
        module="peers.gnndist_peer",
        arguments=(str(ranks),),
        threads=max(1, threads // ranks),
        processes=ranks,
        environment=tuple(
            (name, value)
            for name, value in worker_environment(ranks).items()
            if os.environ.get(name) != value
        ),
    )


def compare(
    problem: Problem, entries: list[Entry], warmup: int, epochs: int, console: Console
) -> Section:
    """Warm all contenders up and time them, epochs interleaved."""
    with ExitStack() as running, console.status("starting") as status:
        contenders = []
        for entry in entries:
            status.update(f"{problem.model}: starting {entry.key}")
            contenders.append(running.enter_context(started(entry, problem)))
        for number in range(warmup + epochs):
            for contender in contenders:
                status.update(
                    f"{problem.model}, dropout {problem.dropout:g}: epoch {number + 1} of "
                    f"{warmup + epochs}, {contender.entry.key}"
                )
                time.sleep(SETTLE_S)
                contender.run_epoch(warmup=number < warmup)
    return Section(
        model=problem.model, dropout=problem.dropout, dtype=problem.dtype, contenders=contenders
    )


@contextmanager
def started(entry: Entry, problem: Problem) -> Iterator[Contender]:
    """A contender that is stopped in the end."""
    log = Path(problem.folder) / f"{entry.key.replace('/', '-')}.log"
    contender = Contender.start(entry, problem.folder, log)
    try:
        yield contender
    finally:
        contender.stop()


def machine() -> dict[str, Any]:
    """Where this ran."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": psutil.virtual_memory().total,
        "huge_pages": HUGE_PAGES.read_text().strip() if HUGE_PAGES.exists() else "none",
        "python": platform.python_version(),
        "load": os.getloadavg(),
    }


if __name__ == "__main__":
    main()
