"""The ratios to reach: gnndist's epoch over a peer's, medians of one run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

Medians = Mapping[str, float]
"""seconds by contender"""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A quotient of the fastest of one set of contenders and the fastest of another."""

    model: str
    dropout: bool
    """whether it is about the run with dropout"""
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    most: float

    def ratio(self, medians: Medians) -> tuple[str, str, float] | None:
        """(our fastest, their fastest, quotient); None if one side did not run."""
        ours, theirs = _fastest(self.ours, medians), _fastest(self.theirs, medians)
        if ours is None or theirs is None:
            return None
        return ours, theirs, medians[ours] / medians[theirs]


def _fastest(keys: Sequence[str], medians: Medians) -> str | None:
    run = [k for k in keys if not isnan(medians.get(k, float("nan")))]
    return min(run, key=lambda k: medians[k], default=None)


ONE_OR_TWO = ("gnndist/1", "gnndist/2")
PYG_INSTALLED = ("pyg-csr/installed", "pyg-EdgeIndex/installed", "pyg-edge_index/installed")
PYG_BEST = ("pyg-csr/best", "pyg-EdgeIndex/best", "pyg-edge_index/best")
INSTALLED = ("dgl/installed", *PYG_INSTALLED)
BEST = ("dgl/best", *PYG_BEST)


def _gcn(theirs: str, most: float, *, dropout: bool = True) -> Target:
    return Target(model="gcn", dropout=dropout, ours=ONE_OR_TWO, theirs=(theirs,), most=most)


TARGETS = (
    _gcn("dgl/installed", 0.25),
    _gcn("dgl/best", 0.40),
    _gcn("dgl/best", 0.55, dropout=False),
    _gcn("pyg-csr/installed", 0.17),
    _gcn("pyg-csr/best", 0.26),
    Target(model="gcn", dropout=True, ours=("gnndist/2",), theirs=("gnndist/1",), most=1.05),
    Target(model="sage", dropout=True, ours=ONE_OR_TWO, theirs=INSTALLED, most=0.35),
    Target(model="sage", dropout=True, ours=ONE_OR_TWO, theirs=BEST, most=0.50),
    Target(model="gat", dropout=True, ours=ONE_OR_TWO, theirs=INSTALLED, most=0.60),
)
