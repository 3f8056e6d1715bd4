"""Each kernel against what the machine can do, and against torch's own operation (and DGL's).

A kernel's floor is the time its memory traffic takes at the measured rates: rows of neighbours at
the rate of a loop that only reads rows in the same order, everything else at the copy's. (Without
locality spmm goes below it: it takes runs of columns one after the other, and so reads rows in
another order.) The contenders of a line are run in turns, round after round, and medians compared.

    python benchmarks/roofline.py --threads 1,2
    THP_MEM_ALLOC_ENABLE=1 python benchmarks/roofline.py --order local
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import torch
from numba import njit
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from gnndist.kernels import (
    CSR,
    EdgeDropout,
    attention_delta,
    bias_relu_dropout,
    bias_relu_dropout_backward,
    compile_kernels,
    dropout_key,
    gat_backward,
    gat_forward,
    gatv2_backward,
    gatv2_forward,
    hash_dropout,
    segment_max,
    segment_max_backward,
    spmm,
)
from gnndist.kernels.arithmetic import add, sum_lanes
from gnndist.kernels.dense import memory
from gnndist.kernels.threads import run_chunks
from gnndist.kernels.vector import item, load, load_first, opaque, zeros

Call = Callable[[], object]
HEADS = 4
KEY = dropout_key(0, 0, 0)


@njit(nogil=True)
def read_rows(indices: Any, x: Any, width: Any, sums: Any, first: Any, last: Any) -> None:
    """Read rows of x in the order of the indices, and do nothing with them but add them up."""
    unit = 64 // x.itemsize
    total, rest = zeros(x, 4), zeros(x, 1)
    entry = first
    while entry < last:
        place = item(indices, entry) * width
        f = 0
        while f + 4 * unit <= width:
            total = add(total, load(x, place + f, 4))
            f += 4 * unit
        while f < width:
            rest = add(rest, load_first(x, place + f, 1, min(unit, width - f)))
            f += unit
        entry = opaque(entry + 1)
    sums[0] = sum_lanes(total) + sum_lanes(rest)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What this machine does at a number of threads."""

    threads: int
    copy: float
    """bytes a second, read and written ones both counted"""
    gather: dict[int, float]
    """bytes a second read in the graph's order, by width of a row in bytes"""
    gemm: float
    """floating-point operations a second"""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One measured kernel."""

    kernel: str
    threads: int
    width: int
    seconds: float
    floor: float
    others: dict[str, float]
    """seconds of other implementations"""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A graph, and how to measure."""

    csr: CSR
    weighted: CSR
    repeats: int
    clock: Callable[[], float]

    def medians(self, calls: dict[str, Call]) -> dict[str, float]:
        """Seconds of each call, run in turns."""
        for call in calls.values():
            call()
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(self.repeats):
            for name, call in calls.items():
                started = self.clock()
                call()
                times[name].append(self.clock() - started)
        return {name: median(found) for name, found in times.items()}


def random_graph(vertices: int, nonzeros: int, order: str) -> tuple[Tensor, Tensor]:
    """indptr and indices: sources anywhere ("random") or within 300 places ("local")."""
    generator = np.random.default_rng(0)
    rows = np.sort(generator.integers(0, vertices, nonzeros))
    if order == "random":
        columns = generator.integers(0, vertices, nonzeros)
    else:
        columns = np.clip(rows + generator.integers(-300, 301, nonzeros), 0, vertices - 1)
    columns = columns[np.lexsort((columns, rows))]
    indptr = np.zeros(vertices + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=vertices), out=indptr[1:])
    return torch.from_numpy(indptr), torch.from_numpy(columns.astype(np.int32))


def measure_machine(bench: Bench, widths: list[int], threads: int) -> Machine:
    rows = bench.csr.num_cols
    source = torch.rand(rows, 256)
    target, product = torch.empty_like(source), torch.empty_like(source)
    weight = torch.rand(256, 256)
    calls: dict[str, Call] = {
        "copy": lambda: target.copy_(source),
        "gemm": lambda: torch.mm(source, weight, out=product),
    }
    indices, sums = memory(bench.csr.indices), np.zeros(16, np.float32)
    bounds = [bench.csr.nnz * part // (4 * threads) for part in range(4 * threads + 1)]
    for width in widths:
        x = memory(torch.rand(rows, width))
        read_rows(indices, x, width, sums, 0, 1)

        def gather(x: Any = x, width: int = width) -> None:
            run_chunks(lambda a, b: read_rows(indices, x, width, sums, a, b), bounds)

        calls[f"gather {width}"] = gather
    times = bench.medians(calls)
    return Machine(
        threads=threads,
        copy=2 * source.nbytes / times["copy"],
        gather={
            4 * width: bench.csr.nnz * 4 * width / times[f"gather {width}"] for width in widths
        },
        gemm=2 * rows * 256 * 256 / times["gemm"],
    )


def products(bench: Bench, machine: Machine, width: int) -> list[Line]:
    """spmm without and with weights."""
    rows = bench.csr.num_rows
    x, out, out_torch = torch.rand(rows, width), *(torch.empty(rows, width) for _ in range(2))
    size = (rows, bench.csr.num_cols)
    lines = []
    for name, csr in (("spmm", bench.csr), ("spmm, weighted", bench.weighted)):
        values = torch.ones(csr.nnz) if csr.values is None else csr.values
        matrix = torch.sparse_csr_tensor(csr.indptr, csr.indices.long(), values, size)
        calls: dict[str, Call] = {
            "gnndist": lambda csr=csr: spmm(csr, x, out=out),
            "A @ x": lambda matrix=matrix: matrix @ x,
            "addmm(out=)": lambda matrix=matrix: torch.addmm(
                out_torch, matrix, x, beta=0, out=out_torch
            ),
            "mm_reduce": lambda matrix=matrix: torch.ops.aten._sparse_mm_reduce_impl(
                matrix, x, "sum"
            ),
            **dgl_product(csr, x),
        }
        stream = out.nbytes + csr.nnz * (4 if csr.values is None else 8) + csr.indptr.nbytes
        gathered = csr.nnz * 4 * width
        floor = gathered / machine.gather[4 * width] + stream / machine.copy
        lines.append(line(bench, machine, name, width, floor, calls))
    return lines


def dgl_product(csr: CSR, x: Tensor) -> dict[str, Call]:
    """DGL's product, where it is installed."""
    try:
        import dgl
    except ImportError:
        return {}
    arrays = (csr.indptr.to(torch.int32), csr.indices, torch.tensor([], dtype=torch.int32))
    graph = dgl.graph(("csr", arrays), num_nodes=csr.num_rows, idtype=torch.int32).reverse()
    graph = graph.formats("csc")
    graph.create_formats_()
    if csr.values is None:
        return {"DGL": lambda: dgl.ops.copy_u_sum(graph, x)}
    weights = csr.values[:, None]
    return {"DGL": lambda: dgl.ops.u_mul_e_sum(graph, x, weights)}


def elementwise(bench: Bench, machine: Machine, width: int) -> list[Line]:
    """Dropout, alone and with bias and ReLU."""
    rows = bench.csr.num_rows
    x, grad, out = torch.randn(rows, width), torch.randn(rows, width), torch.empty(rows, width)
    bias = torch.randn(width)
    functional = torch.nn.functional
    forward = bias_relu_dropout(x, bias, 0.5, KEY, 0)
    leaf, leaf_bias = x.clone().requires_grad_(), bias.clone().requires_grad_()
    graph = functional.dropout((leaf + leaf_bias).relu(), 0.5)

    def backward_of_torch() -> None:
        torch.autograd.grad(graph, (leaf, leaf_bias), grad, retain_graph=True)

    cases: list[tuple[str, int, Call, Call]] = [
        (
            "hash_dropout",
            2,
            lambda: hash_dropout(x, 0.5, KEY, 0, out=out),
            lambda: functional.dropout(x, 0.5),
        ),
        (
            "bias, ReLU, dropout",
            2,
            lambda: bias_relu_dropout(x, bias, 0.5, KEY, 0, out=out),
            lambda: functional.dropout((x + bias).relu(), 0.5),
        ),
        (
            "… backward",
            3,
            lambda: bias_relu_dropout_backward(grad, forward, 0.5, KEY, 0, grad_x=out),
            backward_of_torch,
        ),
    ]
    return [
        line(bench, machine, name, width, passes * x.nbytes / machine.copy, {
            "gnndist": ours, "torch": other
        })
        for name, passes, ours, other in cases
    ]  # fmt: skip


def edgewise(bench: Bench, machine: Machine, width: int) -> list[Line]:
    """Maximum and attention, forward and backward; torch's maximum goes through all edges."""
    csr = bench.csr
    rows = csr.num_rows
    x, grad, out = torch.randn(rows, width), torch.randn(rows, width), torch.empty(rows, width)
    gathered = csr.nnz * 4 * width / machine.gather[4 * width]
    once = x.nbytes / machine.copy
    best, ties = segment_max(csr, x)
    columns, degrees = csr.indices.long(), csr.indptr.diff()

    def torch_max() -> Tensor:
        return torch.segment_reduce(x[columns], "max", lengths=degrees, axis=0, unsafe=True)

    lines = [
        line(bench, machine, "segment_max", width, gathered + 2 * once, {
            "gnndist": lambda: segment_max(csr, x, (best, ties)), "torch": torch_max
        }),
        line(bench, machine, "… backward", width, 2 * gathered + 2 * once, {
            "gnndist": lambda: segment_max_backward(csr, grad, x, best, ties, out)
        }),
    ]  # fmt: skip
    heads = (rows, HEADS, width // HEADS)
    x, grad, out = x.view(heads), grad.view(heads), out.view(heads)
    scores, attention = torch.randn(rows, HEADS), torch.randn(HEADS, width // HEADS)
    memory_of_out = torch.empty_like(out)
    drop = EdgeDropout(p=0.5, key=KEY, destinations=0, sources=0)
    for name, dropout in (("GAT", None), ("GAT, edge dropout", drop)):
        state = gat_forward(csr, x, scores, scores, dropout=dropout)
        shift, delta = state.shift(), attention_delta(grad, state.finish())
        lines += [
            line(bench, machine, name, width, gathered + once, {
                "gnndist": lambda dropout=dropout: gat_forward(
                    csr, x, scores, scores, dropout=dropout, out=memory_of_out
                )
            }),
            line(bench, machine, "… backward", width, gathered + 2 * once, {
                "gnndist": lambda dropout=dropout, shift=shift, delta=delta: gat_backward(
                    csr, grad, x, scores, scores, shift, delta, dropout=dropout, grad_x=out
                )
            }),
        ]  # fmt: skip
    state = gatv2_forward(csr, x, x, attention)
    shift, delta = state.shift(), attention_delta(grad, state.finish())
    lines += [
        line(bench, machine, "GATv2", width, gathered + 2 * once, {
            "gnndist": lambda: gatv2_forward(csr, x, x, attention, out=memory_of_out)
        }),
        line(bench, machine, "… backward", width, 3 * gathered + 4 * once, {
            "gnndist": lambda: gatv2_backward(
                csr, grad, x, x, attention, shift, delta, grad_x=out
            )
        }),
    ]  # fmt: skip
    return lines


def line(
    bench: Bench, machine: Machine, kernel: str, width: int, floor: float, calls: dict[str, Call]
) -> Line:
    times = bench.medians(calls)
    return Line(
        kernel=kernel,
        threads=machine.threads,
        width=width,
        seconds=times.pop("gnndist"),
        floor=floor,
        others=times,
    )


def show(console: Console, machines: list[Machine], lines: list[Line]) -> None:
    table = Table(title="What the machine does", title_justify="left")
    for heading in ("threads", "copy GB/s", "gather GB/s by row", "GEMM GFLOP/s"):
        table.add_column(heading, justify="right")
    for machine in machines:
        gather = ", ".join(f"{size} B: {rate / 1e9:.1f}" for size, rate in machine.gather.items())
        table.add_row(
            str(machine.threads), f"{machine.copy / 1e9:.1f}", gather, f"{machine.gemm / 1e9:.0f}"
        )
    console.print(table)
    table = Table(title="Kernels, float32", title_justify="left")
    table.add_column("kernel")
    for heading in ("features", "threads", "ms", "÷ floor"):
        table.add_column(heading, justify="right")
    table.add_column("times faster than")
    for found in lines:
        others = ", ".join(
            f"{name} {seconds / found.seconds:.1f}" for name, seconds in found.others.items()
        )
        table.add_row(
            found.kernel,
            str(found.width),
            str(found.threads),
            f"{found.seconds * 1e3:.1f}",
            f"{found.seconds / found.floor:.2f}",
            others,
        )
    console.print(table)


def numbers(context: object, parameter: object, value: str) -> list[int]:
    try:
        found = [int(part) for part in value.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{value!r}; whole numbers, such as 1,2") from error
    if min(found) < 1:
        raise click.BadParameter(f"{value!r}; numbers from 1 on")
    return found


@click.command(help=__doc__, context_settings={"max_content_width": 100})
@click.option("--vertices", default=169_343, show_default=True, help="ogbn-arxiv's")
@click.option("--nonzeros", default=2_500_000, show_default=True, help="about its symmetric edges")
@click.option(
    "--order",
    type=click.Choice(["random", "local"]),
    default="random",
    show_default=True,
    help="neighbours anywhere, or within 300 places",
)
@click.option("--widths", default="40,128,256", show_default=True, callback=numbers, help="of spmm")
@click.option("--threads", default="1,2", show_default=True, callback=numbers)
@click.option("--repeats", default=7, show_default=True)
@click.option("--processor-time", is_flag=True, help="of the calling thread, on a busy machine")
@click.option("--json", "output", type=click.Path(path_type=Path), help="all figures go here")
def main(
    vertices: int,
    nonzeros: int,
    order: str,
    widths: list[int],
    threads: list[int],
    repeats: int,
    processor_time: bool,
    output: Path | None,
) -> None:
    console = Console(width=None if sys.stdout.isatty() else 110)
    if processor_time and threads != [1]:
        raise click.UsageError("--processor-time sees one thread: give --threads 1")
    warnings.filterwarnings("ignore", message="Sparse")
    console.print(f"kernels ready after {compile_kernels():.1f} s")
    indptr, indices = random_graph(vertices, nonzeros, order)
    bench = Bench(
        csr=CSR(indptr=indptr, indices=indices, num_cols=vertices),
        weighted=CSR(
            indptr=indptr, indices=indices, values=torch.rand(nonzeros), num_cols=vertices
        ),
        repeats=repeats,
        clock=time.thread_time if processor_time else time.perf_counter,
    )
    machines, lines = [], []
    steps = len(threads) * (len(widths) + 3)
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("measuring", total=steps)
        for count in threads:
            torch.set_num_threads(count)
            machine = measure_machine(bench, sorted({*widths, 256}), count)
            machines.append(machine)
            progress.advance(bar)
            for width in widths:
                lines += products(bench, machine, width)
                progress.advance(bar)
            for part in (elementwise, edgewise):
                lines += part(bench, machine, 256)
                progress.advance(bar)
    show(console, machines, lines)
    if output is not None:
        figures = {"order": order, "vertices": vertices, "nonzeros": nonzeros}
        figures |= {"machine": [asdict(one) for one in machines]}  # type: ignore[dict-item]
        figures |= {"kernels": [asdict(one) for one in lines]}  # type: ignore[dict-item]
        output.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
