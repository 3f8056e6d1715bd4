"""OGB's own evaluator: the figures its leaderboards compare.

The predictions of labelled vertices go to rank 0, which asks `ogb.nodeproppred.Evaluator`.
"""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnndist.comm import Comm
from gnndist.errors import GnndistError
from gnndist.extras import need
from gnndist.graph import SPLITS

Figures = dict[str, float]


def is_available() -> bool:
    """Whether the package `ogb` is there."""
    return importlib.util.find_spec("ogb") is not None


def official_figures(
    evaluator: str, logits: Tensor, labels: Tensor, split: Tensor, comm: Comm
) -> Figures:
    """What OGB's evaluator of the data set `evaluator` says, as ``{split}_ogb_{metric}``.

    logits [n, C]; labels [n] or [n, C]; split [n] uint8: this rank's vertices, in one order.
    Empty where rank 0 has no package `ogb`. Every rank has to call it.
    """
    known = split > 0
    if labels.dim() == 1:
        known &= labels >= 0
        mine = (logits[known].argmax(dim=1, keepdim=True), labels[known][:, None])
    else:
        mine = (logits[known], labels[known])
    rows = (*(tensor.cpu().numpy() for tensor in mine), split[known].cpu().numpy())
    parts = comm.swap([rows if rank == 0 else None for rank in range(comm.world)])
    figures: Figures = {}
    if comm.rank == 0 and is_available():
        guess, truth, code = (np.concatenate(column) for column in zip(*parts, strict=True))
        figures = _judged(evaluator, guess, truth, code)
    return cast(Figures, comm.all_gather(figures)[0])


def _judged(
    evaluator: str, guess: NDArray[Any], truth: NDArray[Any], code: NDArray[np.uint8]
) -> Figures:
    judge = _evaluator_class()(name=evaluator)
    figures: Figures = {}
    for number, name in enumerate(SPLITS, start=1):
        of_split = code == number
        if of_split.any():
            found = judge.eval({"y_true": truth[of_split], "y_pred": guess[of_split]})
            figures |= {f"{name}_ogb_{metric}": float(value) for metric, value in found.items()}
    return figures


def _evaluator_class() -> Any:
    """ogb.nodeproppred.Evaluator, without the look at the network that importing ogb takes."""
    sys.modules.setdefault("outdated", cast(ModuleType, _NEVER_OUTDATED))
    module = need("ogb.nodeproppred.evaluate", "ogb", "OGB's evaluator")
    try:
        return module.Evaluator
    except AttributeError as error:
        raise GnndistError(f"this version of ogb has no node evaluator: {error}") from error


_NEVER_OUTDATED = SimpleNamespace(check_outdated=lambda *_: (False, ""))
"""stands in for the package `outdated`, whose one use in ogb is to ask for a newer version"""
