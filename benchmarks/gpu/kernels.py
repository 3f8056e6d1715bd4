"""Each kernel on a device against the compiled one on the CPU: largest difference, milliseconds."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnndist.device import synchronize
from gnndist.kernels import (
    CSR,
    bias_relu_dropout,
    bias_relu_dropout_backward,
    dropout_key,
    gat_forward,
    hash_dropout,
    segment_max,
    segment_max_backward,
    spmm,
)

REPEATS = 5
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}
"""relative to the largest number of a result"""


class Row(NamedTuple):
    """One kernel's outcome."""

    name: str
    error: float
    limit: float
    milliseconds: float


Case = Callable[[CSR, Callable[[Tensor], Tensor]], Any]
"""(the matrix on a device, what moves a tensor there) → the kernel's result"""


def check_kernels(
    adjacency: CSR, widths: Sequence[int], device: torch.device, dtype: torch.dtype
) -> Iterator[Row]:
    """Every kernel at each width on a square matrix, which lies on the CPU."""
    here = adjacency.to(device=device)
    for width in widths:
        for name, case in _cases(adjacency.num_rows, width, dtype).items():
            yield _row(f"{name}, {width}", case, adjacency, here, device, dtype)


def _cases(n: int, width: int, dtype: torch.dtype) -> dict[str, Case]:
    """What is checked, on matrices of n rows."""
    generator = torch.Generator().manual_seed(0)
    heads, key = 4, dropout_key(0, 1, 2)
    x, y = (torch.randn(n, width, generator=generator, dtype=dtype) for _ in range(2))
    bias = torch.randn(width, generator=generator, dtype=dtype)
    source, target = torch.randn(2, n, heads, generator=generator, dtype=dtype)
    by_head = x[:, : width // heads * heads].reshape(n, heads, -1).clone()
    return {
        "sparse product": lambda a, to: spmm(a, to(x)),
        "transposed, added to": lambda a, to: spmm(
            a.transpose(), to(x), out=to(y).clone(), accumulate=True
        ),
        "dropout": lambda a, to: hash_dropout(to(x), 0.5, key, 0),
        "bias, ReLU, dropout": lambda a, to: bias_relu_dropout(to(x), to(bias), 0.5, key, 0, True),
        "its gradient": lambda a, to: bias_relu_dropout_backward(to(y), to(x), 0.5, key, 0, True),
        "maximum": lambda a, to: segment_max(a, to(x))[0],
        "its gradient, of ties": lambda a, to: segment_max_backward(
            a, to(y), to(x), *segment_max(a, to(x))
        ),
        "attention": lambda a, to: gat_forward(a, to(by_head), to(source), to(target)).finish(),
    }


def _row(
    name: str,
    run: Case,
    cpu: CSR,
    there: CSR,
    device: torch.device,
    dtype: torch.dtype,
) -> Row:
    kept: dict[int, Tensor] = {}

    def to(tensor: Tensor) -> Tensor:
        """On the device; moved once, so that the moving is not measured."""
        return kept.setdefault(id(tensor), tensor.to(device))

    wanted = _tensors(run(cpu, lambda tensor: tensor))
    found = _tensors(run(there, to))
    error = max(
        float((a.cpu() - b).abs().max() / b.abs().max().clamp(min=1e-30))
        for a, b in zip(found, wanted, strict=True)
    )
    times = []
    for _ in range(REPEATS):
        synchronize(device)
        start = time.perf_counter()
        run(there, to)
        synchronize(device)
        times.append(time.perf_counter() - start)
    return Row(name, error, TOLERANCE[dtype], 1e3 * statistics.median(times))


def _tensors(result: Any) -> list[Tensor]:
    parts = result if isinstance(result, tuple) else (result,)
    return [part for part in parts if isinstance(part, Tensor)]
