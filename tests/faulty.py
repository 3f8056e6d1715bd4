"""A GCN that fails where the environment variable FAULT tells it to: `--model faulty:Model`.

FAULT is JSON: what happens (`kind`), where, on which rank, in which epoch.
"""

import json
import os
import shutil
import signal
import threading
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnndist.failures import is_worker
from gnndist.nn.models import build_model
from gnndist.rankgraph import RankGraph
from gnndist.training import checkpoint


class Model(nn.Module):
    """A two-layer GCN with faults: while it is built, between its layers, in its backward pass,
    in an evaluation, and while a checkpoint of it is half-written."""

    def __init__(self, in_channels: int, out_channels: int, hidden: int = 8, dropout: float = 0.5):
        super().__init__()
        options = {"hidden": (hidden, 256), "dropout": (dropout, 0.5)}
        self.inner = build_model("gcn", in_channels, out_channels, options)
        self.epoch = 0
        if not is_worker():
            return
        self.fault = json.loads(os.environ.get("FAULT", "{}"))
        self.inner.convs[1].register_forward_pre_hook(self._between_layers)
        self._first = self.inner.convs[0].without_bias
        self.inner.convs[0].without_bias = self._first_layer
        self._at("start")
        if self._mine("checkpoint"):
            checkpoint._write = self._half_write
        if self.fault.get("kind") == "random":
            self.register_forward_pre_hook(_KillSomeTime(self.fault))

    @property
    def num_layers(self) -> int:
        return self.inner.num_layers

    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        self.epoch = graph.clock.epoch
        out = self.inner(graph, x)
        if out.requires_grad:
            out.register_hook(self._in_backward)
        return out

    def _between_layers(self, module: nn.Module, inputs: Any) -> None:
        # The other ranks have sent their rows of the second layer and wait for ours.
        self._at("forward" if self.training else "evaluate")

    def _first_layer(self, graph: RankGraph, h: Tensor, **options: Any) -> Tensor:
        out: Tensor = self._first(graph, h, **options)
        broken = self.training and self._mine("forward") and self.fault["kind"] == "nan"
        return out * float("nan") if broken else out

    def _in_backward(self, grad: Tensor) -> Tensor | None:
        if self._mine("backward") and self.fault["kind"] == "nan":
            return grad * float("inf")
        self._at("backward")
        return None

    def _half_write(self, path: Any, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(
                content if self.epoch < self.fault["epoch"] else content[: len(content) // 2]
            )
        self._at("checkpoint")

    def _mine(self, where: str) -> bool:
        fault = self.fault
        return (
            fault.get("where") == where
            and str(fault["rank"]) == os.environ["RANK"]
            and self.epoch >= (0 if where in ("start", "checkpoint") else fault["epoch"])
            and int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < fault.get("attempts", 1000)
        )

    def _at(self, where: str) -> None:
        if not self._mine(where) or self.epoch < self.fault["epoch"]:
            return
        kind = self.fault["kind"]
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "suspend":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif kind == "raise":
            raise ValueError("a bug in the model")
        elif kind == "memory":
            torch.empty(1 << 60)
        elif kind == "hang":
            hang_for_ever()
        elif kind == "slow":
            time.sleep(self.fault["seconds"])
        elif kind == "vanish":
            shutil.rmtree(self.fault["folder"])


def hang_for_ever() -> None:
    while True:
        time.sleep(0.05)


class _KillSomeTime:
    """SIGKILL to one rank at a random moment of a random epoch of each of the first attempts.

    The epoch is counted from the attempt's first, and the moment is a part of the epoch before
    it, so that on machines of any speed a kill strikes while the ranks train.
    """

    def __init__(self, fault: dict[str, Any]) -> None:
        attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        rng = np.random.default_rng([fault["seed"], attempt])
        rank = rng.integers(int(os.environ["WORLD_SIZE"]))
        self._waiting = attempt < fault["attempts"] and str(rank) == os.environ["RANK"]
        self._epochs, self._part = rng.integers(fault["within_epochs"]), rng.uniform()
        self._begun = time.monotonic()

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        now = time.monotonic()
        if self._waiting and self._epochs == 0:
            delay = self._part * (now - self._begun)
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            self._waiting = False
        self._epochs -= module.training
        self._begun = now
