"""Synchronous full-graph training on one rank of a job."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnndist.comm import Comm
from gnndist.nn.models import build_model
from gnndist.rankgraph import RankGraph
from gnndist.store import Store
from gnndist.tasks import Metrics, Objective, Task, task
from gnndist.training.config import TrainConfig
from gnndist.training.gradients import broadcast_state, sum_gradients
from gnndist.training.shard import Shard, load_shard
from gnndist.training.tally import Tally

MODEL_OPTIONS = ("hidden", "layers", "dropout", "input_dropout")


@dataclass(kw_only=True)
class Best:
    """The best epoch so far, by validation."""

    epoch: int = 0
    metrics: Metrics | None = None
    state: dict[str, Tensor] | None = None


@dataclass(eq=False, kw_only=True)
class Trainer:
    """One rank's state of a training run."""

    config: TrainConfig
    comm: Comm
    shard: Shard
    task: Task
    model: nn.Module
    optimizer: torch.optim.Optimizer
    graph: RankGraph
    """the view that training computes on"""
    x: Tensor
    """its input features"""
    labels: Tensor
    """labels of its output rows; −1 or NaN where they do not train"""
    objective: Objective
    count: float
    """what the loss is divided by, over all ranks"""
    tally: Tally = field(default_factory=Tally)
    """what this rank's epochs have cost"""
    around_step: Callable[[int], AbstractContextManager[Any]] = nullcontext
    """entered with an epoch's number for its step: a profiler"""

    @classmethod
    def create(
        cls,
        store: Store,
        config: TrainConfig,
        comm: Comm,
        device: torch.device,
        *,
        runs: NDArray[np.int64] | None = None,
    ) -> "Trainer":
        """Load the shard and build the model, on every rank alike.

        `runs` ([ranks + 1]) says where each rank's vertices begin; by default they are balanced.
        """
        dtype = getattr(torch, config.dtype)
        shard = load_shard(store, comm, device=device, dtype=dtype, seed=config.seed, runs=runs)
        model = make_model(store, config).to(device=device, dtype=dtype)
        broadcast_state(model, comm)
        graph, rows = training_view(shard, model)
        labels = shard.labels.clone()
        labels[shard.split != 1] = -1 if labels.dtype == torch.int64 else float("nan")
        labels = labels[rows]
        kind, objective = task(store.manifest.task), Objective()
        count = kind.loss_count(labels, objective)
        comm.all_reduce(count)
        return cls(
            config=config,
            comm=comm,
            shard=shard,
            task=kind,
            model=model,
            optimizer=make_optimizer(model, config),
            graph=graph,
            x=graph.constant if graph.constant is not None else shard.features,
            labels=labels,
            objective=objective,
            count=float(count),
        )

    def step(self, epoch: int) -> float:
        """One pass forward and backward and one step of the optimiser; the global loss."""
        self.graph.clock.start_epoch(epoch)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(self.graph, self.x)
        loss = self.task.loss_sum(logits, self.labels, self.objective) / self.count
        loss.backward()
        sum_gradients(self.model.parameters(), self.comm)
        self.optimizer.step()
        total = loss.detach().double()
        self.comm.all_reduce(total)
        return float(total)

    def logits(self) -> Tensor:
        """Predictions for all owned vertices, [n, outputs]."""
        self.model.eval()
        with torch.no_grad():
            out: Tensor = self.model(self.shard.graph, self.shard.features)
        return out

    def evaluate(self) -> Metrics:
        """The metrics of every split."""
        shard = self.shard
        with self.tally.evaluation():
            return self.task.metrics(self.logits(), shard.labels, shard.split, self.comm)

    def run(self, on_epoch: Callable[[dict[str, Any]], None]) -> Best:
        """All epochs; `on_epoch` is told the figures of each (on every rank)."""
        best = Best()
        sign = 1 if self.task.higher_is_better else -1
        key = f"valid_{self.task.metric}"
        for epoch in range(1, self.config.epochs + 1):
            self.comm.meter.take()
            with self.around_step(epoch):
                start = time.perf_counter()
                loss = self.step(epoch)
                epoch_s = time.perf_counter() - start
            line = {"epoch": epoch, "loss": loss} | self._costs(epoch_s)
            if epoch % self.config.eval_every == 0 or epoch == self.config.epochs:
                metrics = self.evaluate()
                line |= metrics
                # Without a validation split the figure is NaN, and the last epoch is taken.
                if best.metrics is None or not sign * metrics[key] <= sign * best.metrics[key]:
                    state = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
                    best = Best(epoch=epoch, metrics=metrics, state=state)
            on_epoch(line)
        return best

    def _costs(self, epoch_s: float) -> dict[str, float]:
        """Times as the slowest rank saw them, bytes of all ranks."""
        reading = self.comm.meter.take()
        self.tally.add(epoch_s, reading)
        blocked = reading.wait_s + reading.reduce_s
        times = torch.tensor([epoch_s, epoch_s - blocked, reading.wait_s], dtype=torch.float64)
        sent = torch.tensor([reading.bytes_sent], dtype=torch.int64)
        times, sent = times.to(self.x.device), sent.to(self.x.device)
        self.comm.all_reduce(times, "max")
        self.comm.all_reduce(sent)
        epoch_s, compute_s, wait_s = times.tolist()
        return {
            "epoch_s": epoch_s,
            "compute_s": compute_s,
            "wait_s": wait_s,
            "bytes_sent": int(sent),
        }


def make_model(store: Store, config: TrainConfig) -> nn.Module:
    """The model of a run, its initial weights a function of the seed."""
    defaults = {item.name: item.default for item in fields(config)}
    values = asdict(config)
    options = {name: (values[name], defaults[name]) for name in MODEL_OPTIONS}
    torch.manual_seed(config.seed)
    return build_model(
        config.model, store.manifest.num_features, store.manifest.num_classes, options
    )


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam, with weight decay on all layers or on the first only."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if config.decay_on == "all":
        return torch.optim.Adam(parameters, lr=config.lr, weight_decay=config.weight_decay)
    convs = getattr(model, "convs", None)
    first = set(convs[0].parameters()) if convs is not None else {parameters[0]}
    groups: list[dict[str, Any]] = [
        {
            "params": [p for p in parameters if p in first],
            "weight_decay": config.weight_decay,
        },
        {"params": [p for p in parameters if p not in first]},
    ]
    return torch.optim.Adam([g for g in groups if g["params"]], lr=config.lr)


def training_view(shard: Shard, model: nn.Module) -> tuple[RankGraph, Tensor]:
    """The view that training needs and which owned vertices (local ids) it computes.

    The loss reads labelled vertices only. A model that says how many layers it has computes each
    layer just where the next one reads it; one with batch norm, or of unknown depth, everywhere.
    """
    depth = getattr(model, "num_layers", None)
    everywhere = torch.arange(len(shard.split), device=shard.split.device)
    if depth is None or getattr(model, "needs_every_vertex", False):
        return shard.graph, everywhere
    rows = shard.train_rows
    start = shard.graph.part.start
    view = shard.graph.layered(rows.cpu().numpy() + start, depth)
    first = view.at(0).column_ids
    if isinstance(first, int):
        first = torch.arange(first, first + view.num_columns)
    view.constant = shard.features[first.to(shard.features.device) - start]
    return view, rows
