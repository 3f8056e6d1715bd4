"""Whether gnndist is right on this machine's GPU, and how fast: in under five minutes.

    python benchmarks/gpu_check.py --json gpu.json

Kernels against the compiled ones on the CPU; losses of one rank, and of two that share the GPU
(gloo, staged through pinned memory; with two GPUs also NCCL), against one rank on the CPU in
float64; epoch times against PyG where it is installed. Ends with code 0 if all agree, 1 if
something does not, 2 if there is no GPU (`--device cpu` checks this script itself).
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu.kernels import check_kernels
from gpu.ranks import some_ranks
from rich.console import Console
from rich.table import Table

from gnndist.data import load
from gnndist.device import name_of, pick_device
from gnndist.device_names import CPU, GPU
from gnndist.errors import ConfigError
from gnndist.graph import Graph
from gnndist.kernels import CSR
from gnndist.store import write_store
from gnndist.units import duration

PARTS = ("kernels", "exactness", "timings")
SMALL, EPOCHS = 0.02, 5
"""of the graph, for exactness"""
LIMIT = 1e-8
"""relative difference of losses in float64"""
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"layers": 3},
    "gcn, batch norm": {"layers": 3, "norm": "batch"},
    "sage": {"model": "sage"},
    "sage, maximum": {"model": "sage", "aggr": "max"},
    "gat": {"model": "gat", "heads": 4, "attention_dropout": 0.2},
}


def kernels(graph: Graph, device: torch.device, console: Console) -> bool:
    table = Table("kernel", "difference", "at most", "ms", title="kernels, float32")
    matrix = adjacency(graph, torch.float32)
    right = True
    for row in check_kernels(matrix, (40, 128, 256), device, torch.float32):
        fine = row.error <= row.limit
        right &= fine
        shown = (f"{row.error:.1e}", f"{row.limit:.0e}", f"{row.milliseconds:.2f}")
        table.add_row(row.name, *shown, style=None if fine else "red")
    console.print(table)
    return right


def adjacency(graph: Graph, dtype: torch.dtype) -> CSR:
    generator = torch.Generator().manual_seed(3)
    return CSR(
        indptr=torch.tensor(graph.indptr, dtype=torch.int64),
        indices=torch.tensor(graph.indices, dtype=torch.int32),
        values=torch.rand(len(graph.indices), generator=generator, dtype=dtype),
        num_cols=graph.num_vertices,
    )


def exactness(folder: Path, graph: Graph, kind: str, console: Console) -> bool:
    """Losses on the device, by one rank and several, against one rank on the CPU."""
    write_store(graph, folder / "small", cells=16)
    options = {"hidden": 32, "dtype": "float64", "seed": 3}
    columns = ("model", "ranks", "transport", "difference of losses", "at most")
    table = Table(*columns, title=f"exactness, float64, {EPOCHS} epochs")
    gpus = torch.cuda.device_count()
    places = [(CPU, 1, False), (kind, 1, False), (kind, 2, True)]
    if kind == GPU and gpus > 1:
        places.append((kind, min(gpus, 4), False))
    wanted: dict[str, list[float]] = {}
    right = True
    for place, ranks, share in places:
        with some_ranks(folder / "small", ranks, place, share=share) as running:
            for name, model in MODELS.items():
                config = {**options, **model, "device": place}
                losses = running.train(config, epochs=EPOCHS)["losses"]
                if name not in wanted:  # the reference: the CPU comes first
                    wanted[name] = losses
                    continue
                error = float(np.abs(np.array(losses) / wanted[name] - 1).max())
                fine = error <= LIMIT
                right &= fine
                row = (name, str(ranks), running.backend, f"{error:.1e}", f"{LIMIT:.0e}")
                table.add_row(*row, style=None if fine else "red")
    console.print(table)
    return right


def timings(
    folder: Path, graph: Graph, device: torch.device, epochs: int, console: Console
) -> dict[str, float]:
    """Seconds an epoch of a GCN of three layers of width 256."""
    found: dict[str, float] = {}
    write_store(graph, folder / "whole")
    config = {"layers": 3, "hidden": 256, "device": device.type}
    for ranks in (1, 2):
        with some_ranks(folder / "whole", ranks, device.type, share=True) as running:
            reply = running.train(config, epochs=epochs, warmup=2)
        name = f"gnndist, {ranks} {'rank' if ranks == 1 else 'ranks'} ({running.backend})"
        found[name] = statistics.median(reply["seconds"])
    try:
        from gpu.pyg import seconds_an_epoch

        for form in ("csr", "edge_index"):
            seconds = seconds_an_epoch(
                graph, device, form=form, hidden=256, layers=3, epochs=epochs + 2
            )
            found[f"PyG, {form}"] = statistics.median(seconds[2:])
    except ImportError:
        console.print("PyG is not installed: no comparison (pip install 'gnndist[pyg]')")
    except torch.OutOfMemoryError as error:
        console.print(f"PyG ran out of memory: {str(error).splitlines()[0]}")
    table = Table("what", "an epoch", title=f"GCN 3 × 256 on {graph.name}, float32")
    for name, seconds in found.items():
        table.add_row(name, duration(seconds))
    console.print(table)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=(GPU, CPU), default=GPU)
    parser.add_argument("--graph", default="synthetic:arxiv", help="for kernels and timings")
    parser.add_argument("--small", default=f"synthetic:arxiv@{SMALL}", help="for exactness")
    parser.add_argument("--epochs", type=int, default=20, help="timed")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    console = Console(width=100)
    try:
        device = pick_device(options.device)
    except ConfigError as error:
        console.print(f"{error}: nothing was checked", markup=False)
        return 2
    start = time.monotonic()
    where = f"torch {torch.__version__}, {name_of(device)}, {platform.node()}"
    console.print(where, markup=False)
    graph, parts = load(options.graph), options.parts.split(",")
    right, seconds = True, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "kernels" in parts:
            right &= kernels(graph, device, console)
        if "exactness" in parts:
            right &= exactness(folder, load(options.small), options.device, console)
        if "timings" in parts:
            seconds = timings(folder, graph, device, options.epochs, console)
    console.print(
        f"{'all agree' if right else 'SOMETHING DIFFERS'}; {time.monotonic() - start:.0f} s"
    )
    if options.json:
        content = {"where": where, "agree": right, "seconds": seconds, "options": vars(options)}
        options.json.write_text(json.dumps(content, default=str, indent=1))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
