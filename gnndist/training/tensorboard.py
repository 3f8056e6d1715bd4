"""A run's figures for TensorBoard (`--tensorboard`), written beside `metrics.jsonl`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnndist.extras import need
from gnndist.graph import SPLITS

GROUPS = {
    "loss": "loss/train",
    "lr": "learning rate",
    "epoch_s": "time/epoch (s)",
    "compute_s": "time/compute (s)",
    "wait_s": "time/exchange exposed (s)",
    "bytes_sent": "exchange/bytes sent",
}
"""figure of an epoch's line → its tag"""


def check_tensorboard() -> None:
    """Refuse early where TensorBoard is missing.

    Raises
    ------
    GnndistError
        saying how to install it.
    """
    need("tensorboard", "tensorboard", "--tensorboard")


class TensorBoard:
    """Writes each epoch's line to an event file in `folder`.

    A run that goes on after epoch `after` takes back what was written of later ones.
    """

    def __init__(self, folder: Path, after: int = 0) -> None:
        check_tensorboard()
        module = need("torch.utils.tensorboard", "tensorboard", "--tensorboard")
        purge = after + 1 if after > 0 else None
        self._writer = module.SummaryWriter(str(folder), purge_step=purge, flush_secs=15)

    def __call__(self, line: Mapping[str, Any]) -> None:
        for name, value in line.items():
            if (tag := _tag(name)) is not None and isinstance(value, int | float):
                self._writer.add_scalar(tag, value, line["epoch"])

    def close(self) -> None:
        self._writer.close()


def _tag(name: str) -> str | None:
    """Where a figure goes: metrics by name, their splits side by side."""
    split, _, metric = name.partition("_")
    if split in SPLITS and metric:
        return f"{metric}/{split}"
    return GROUPS.get(name)
