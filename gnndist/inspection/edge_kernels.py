"""How much longer the kernels of attention and maximum take than a sparse product as wide."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from gnndist.inspection.rates import Rates, on_all_cores
from gnndist.kernels import CSR, segment_max, segment_max_backward, spmm
from gnndist.kernels.attention import attention_delta
from gnndist.kernels.gat import gat_backward, gat_forward
from gnndist.kernels.gatv2 import gatv2_backward, gatv2_forward

ROWS, DEGREE = 20_000, 12
UNKNOWN = 2.0
"""for a kernel that is not listed here"""


class Inputs(NamedTuple):
    """Random data for one call."""

    csr: CSR
    x: torch.Tensor
    """[rows, heads, width]"""
    score: torch.Tensor
    """[rows, heads]"""

    @property
    def flat(self) -> torch.Tensor:
        return self.x.flatten(1)


Call = Callable[[], object]


def relative_cost(rates: Rates, kernel: str, heads: int, width: int) -> float:
    """Seconds of a kernel's call ÷ those of a sparse product of heads · width features."""
    if kernel.startswith("spmm."):
        return 1.0
    if kernel not in CALLS:
        return UNKNOWN
    call, share = CALLS[kernel]
    seconds, product = (
        rates.get(f"{name} {heads}x{width}", partial(_seconds, rates, make, heads, width))
        for name, make in ((f"kernel {call.__name__}", call), ("kernel product", _product))
    )
    return share * float(seconds) / float(product)


def _seconds(rates: Rates, make: Callable[[Inputs], Call], heads: int, width: int) -> float:
    return on_all_cores(lambda: make(_inputs(heads, width)), rates.cores)


def _inputs(heads: int, width: int) -> Inputs:
    rng = np.random.default_rng(0)
    sources = np.sort(rng.integers(0, ROWS, (ROWS, DEGREE)), axis=1)
    csr = CSR(
        indptr=torch.arange(0, ROWS * DEGREE + 1, DEGREE),
        indices=torch.from_numpy(sources.astype(np.int32).ravel()),
        num_cols=ROWS,
    )
    return Inputs(csr, torch.randn(ROWS, heads, width), torch.randn(ROWS, heads))


def _product(i: Inputs) -> Call:
    out = torch.empty_like(i.flat)
    return lambda: spmm(i.csr, i.flat, out=out)


def _gat(i: Inputs) -> Call:
    return lambda: gat_forward(i.csr, i.x, i.score, i.score)


def _gat_backward(i: Inputs) -> Call:
    state = gat_forward(i.csr, i.x, i.score, i.score)
    shift, grad = state.shift(), torch.randn_like(i.x)
    delta = attention_delta(grad, state.finish())
    return lambda: gat_backward(i.csr, grad, i.x, i.score, i.score, shift, delta)


def _gatv2(i: Inputs) -> Call:
    attention = torch.randn(i.x.shape[1:])
    return lambda: gatv2_forward(i.csr, i.x, i.x, attention)


def _gatv2_backward(i: Inputs) -> Call:
    attention = torch.randn(i.x.shape[1:])
    state = gatv2_forward(i.csr, i.x, i.x, attention)
    shift, grad = state.shift(), torch.randn_like(i.x)
    delta = attention_delta(grad, state.finish())
    return lambda: gatv2_backward(i.csr, grad, i.x, i.x, attention, shift, delta)


def _maximum(i: Inputs) -> Call:
    return lambda: segment_max(i.csr, i.flat)


def _maximum_backward(i: Inputs) -> Call:
    out, ties = segment_max(i.csr, i.flat)
    grad = torch.randn_like(out)
    return lambda: segment_max_backward(i.csr, grad, i.flat, out, ties)


CALLS: Mapping[str, tuple[Any, float]] = {
    "gat_loops._forward": (_gat, 1.0),
    "gat_loops._backward": (_gat_backward, 1.0),
    "gatv2_loops._forward": (_gatv2, 1.0),
    "gatv2_loops._backward_destinations": (_gatv2_backward, 0.5),
    "gatv2_loops._backward_sources": (_gatv2_backward, 0.5),
    "segment._maximum": (_maximum, 1.0),
    "segment._share": (_maximum_backward, 1.0),
}
"""kernel → a call that runs it, and its share of that call's time"""
