"""Synchronous full-graph training on one rank of a job."""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gnndist.buffers import give_back_free_memory
from gnndist.comm import Comm
from gnndist.errors import ConfigError
from gnndist.nn.models import build_model
from gnndist.rankgraph import RankGraph
from gnndist.status import Status
from gnndist.store import Store
from gnndist.tasks import Metrics, Objective, Task, task
from gnndist.training.config import TrainConfig
from gnndist.training.diverged import Diverged, find_origin
from gnndist.training.gradients import broadcast_state, sum_gradients
from gnndist.training.keeper import Keeper
from gnndist.training.objective import make_objective, total_count
from gnndist.training.optim import Schedule, clip_gradients, make_optimizer
from gnndist.training.shard import Shard, load_shard
from gnndist.training.tally import Tally

MODEL_OPTIONS = (
    "hidden",
    "layers",
    "dropout",
    "input_dropout",
    "norm",
    "residual",
    "jk",
    "heads",
    "output_heads",
    "attention_dropout",
    "aggr",
    "l2_normalize",
    "train_eps",
    "hops",
    "teleport",
)


class Stopped(Exception):
    """Training was asked to stop, and has stopped after a whole epoch."""


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
    schedule: Schedule
    graph: RankGraph
    """the view that training computes on"""
    x: Tensor
    """its input features"""
    labels: Tensor
    """labels of its output rows; −1 or NaN where they do not train"""
    objective: Objective
    count: float
    """what the loss is divided by, over all ranks"""
    num_classes: int
    """columns of the model's output"""
    status: Status = field(default_factory=Status)
    """where it stands, for whoever watches"""
    epoch: int = 0
    """epochs done"""
    best: Best = field(default_factory=Best)
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
        shard: Shard | None = None,
        status: Status | None = None,
    ) -> "Trainer":
        """Load the shard and build the model, on every rank alike.

        `runs` ([ranks + 1]) says where each rank's vertices begin; by default they are balanced.
        A `shard` of the same store that is loaded already can be given, with other splits too.
        """
        status = status or Status()
        status.enter("load")
        dtype = getattr(torch, config.dtype)
        shard = shard or load_shard(
            store, comm, device=device, dtype=dtype, savings=config.savings, runs=runs
        )
        shard.graph.clock.seed = config.seed
        status.enter("plan")
        model = make_model(store, config).to(device=device, dtype=dtype)
        broadcast_state(model, comm)
        graph, rows = training_view(shard, model)
        labels = shard.labels.clone()
        labels[shard.split != 1] = -1 if labels.dtype == torch.int64 else float("nan")
        labels = labels[rows]
        kind = task(store.manifest.task)
        classes = store.manifest.num_classes
        objective = make_objective(config, store.manifest.task, labels, classes, comm)
        count = total_count(kind, labels, objective, comm)
        optimizer = make_optimizer(model, config)
        return cls(
            config=config,
            comm=comm,
            shard=shard,
            task=kind,
            model=model,
            optimizer=optimizer,
            schedule=Schedule(optimizer, config, higher_is_better=kind.higher_is_better),
            graph=graph,
            x=graph.constant if graph.constant is not None else shard.features,
            labels=labels,
            objective=objective,
            count=count,
            num_classes=classes,
            status=status,
        )

    def local_loss(self) -> Tensor:
        """This rank's part of the loss, by a forward pass."""
        logits = self._outputs(self.graph, self.x)
        return self.task.loss_sum(logits, self.labels, self.objective) / self.count

    def step(self, epoch: int) -> float:
        """One pass forward and backward and one step of the optimiser; the global loss.

        Raises
        ------
        Diverged
            if the loss or a gradient is not finite, on every rank. The weights have not moved.
        """
        self.graph.clock.start_epoch(epoch)
        self.schedule.start_epoch(epoch)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        self.status.enter("forward", epoch)
        loss = self.local_loss()
        self.status.enter("backward")
        loss.backward()
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        sum_gradients(parameters, self.comm)
        norm = clip_gradients(parameters, self.config.clip_norm)
        self.status.enter("update")
        total = loss.detach().double()
        self.comm.all_reduce(total)
        if not (math.isfinite(norm) and math.isfinite(total)):
            raise Diverged(
                f"epoch {epoch} has loss {float(total):g} and gradient norm {norm:g}, "
                f"{find_origin(self, epoch)}"
            )
        self.optimizer.step()
        return float(total)

    def logits(self) -> Tensor:
        """Predictions for all owned vertices, [n, outputs]."""
        self.model.eval()
        with torch.no_grad():
            return self._outputs(self.shard.graph, self.shard.features)

    def _outputs(self, graph: RankGraph, x: Tensor) -> Tensor:
        """The model's, [n, classes].

        Raises
        ------
        ConfigError
            if they have another width: a loss would take it, and predictions name no class.
        """
        out: Tensor = self.model(graph, x)
        classes = self.num_classes
        if out.dim() != 2 or out.shape[1] != classes:
            raise ConfigError(
                f"model {self.config.model} has an output of shape {tuple(out.shape)}: allowed is "
                f"a row a vertex of {classes} columns, its out_channels"
            )
        return out

    def evaluate(self) -> Metrics:
        """The metrics of every split."""
        self.status.enter("evaluate")
        shard = self.shard
        with self.tally.evaluation():
            return self.task.metrics(self.logits(), shard.labels, shard.split, self.comm)

    def run(
        self,
        on_epoch: Callable[[dict[str, Any]], None],
        *,
        keeper: Keeper | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Best:
        """The epochs that are left; `on_epoch` is told the figures of each (on every rank).

        Raises
        ------
        Stopped
            after the epoch during which `stop` came true on any rank; `keeper` has saved it.
        """
        first = self.epoch + 1
        while self.epoch < self.config.epochs and not self.has_settled:
            epoch = self.epoch + 1
            self.comm.meter.take()
            with self.around_step(epoch):
                start, used = time.perf_counter(), time.process_time()
                loss = self.step(epoch)
                epoch_s, cpu_s = time.perf_counter() - start, time.process_time() - used
            line: dict[str, Any] = {"epoch": epoch, "loss": loss, "lr": self.schedule.lr}
            costs, stopping = self._costs(epoch_s, cpu_s, stop())
            line |= costs
            if epoch % self.config.eval_every == 0 or epoch == self.config.epochs:
                line |= self._evaluated(epoch)
            if epoch == first:  # sparse matrices are made in a first epoch, and plans before it
                give_back_free_memory()
            self.epoch = epoch
            on_epoch(line)
            if keeper is not None and (stopping or keeper.due(self)):
                self.status.enter("checkpoint")
                keeper.save(self)
            if stopping:
                raise Stopped(f"stopped after epoch {epoch}")
        return self.best

    @property
    def has_settled(self) -> bool:
        """Whether validation has not improved for `patience` epochs."""
        waited = self.epoch - self.best.epoch
        return 0 < self.config.patience <= waited and self.best.metrics is not None

    def _evaluated(self, epoch: int) -> Metrics:
        """Evaluate; keep the weights if they are the best so far; tell the schedule."""
        metrics = self.evaluate()
        figure = metrics[f"valid_{self.task.metric}"]
        self.schedule.evaluated(epoch, figure)
        sign = 1 if self.task.higher_is_better else -1
        best = self.best.metrics
        # Without a validation split the figure is NaN, and the last epoch is taken.
        if best is None or not sign * figure <= sign * best[f"valid_{self.task.metric}"]:
            state = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
            self.best = Best(epoch=epoch, metrics=metrics, state=state)
        return metrics

    def _costs(self, epoch_s: float, cpu_s: float, stop: bool) -> tuple[dict[str, float], bool]:
        """Times as the slowest rank saw them, bytes of all ranks; whether any rank is to stop."""
        reading = self.comm.meter.take()
        self.tally.add(epoch_s, cpu_s, reading)
        blocked = reading.wait_s + reading.reduce_s
        times = torch.tensor(
            [epoch_s, epoch_s - blocked, reading.wait_s, float(stop)], dtype=torch.float64
        )
        sent = torch.tensor([reading.bytes_sent], dtype=torch.int64)
        times, sent = times.to(self.x.device), sent.to(self.x.device)
        self.comm.all_reduce(times, "max")
        self.comm.all_reduce(sent)
        epoch_s, compute_s, wait_s, stopping = times.tolist()
        costs = {
            "epoch_s": epoch_s,
            "compute_s": compute_s,
            "wait_s": wait_s,
            "bytes_sent": int(sent),
        }
        return costs, stopping > 0


def make_model(store: Store, config: TrainConfig) -> nn.Module:
    """The model of a run, its initial weights a function of the seed."""
    defaults = {item.name: item.default for item in fields(config)}
    values = asdict(config)
    options = {name: (values[name], defaults[name]) for name in MODEL_OPTIONS}
    torch.manual_seed(config.seed)
    return build_model(
        config.model, store.manifest.num_features, store.manifest.num_classes, options
    )


def training_view(shard: Shard, model: nn.Module) -> tuple[RankGraph, Tensor]:
    """The view that training needs and which owned vertices (local ids) it computes.

    The loss reads labelled vertices only. A model that says how many layers it has computes each
    layer just where the next one reads it; one of unknown depth, or with a module that needs every
    vertex (batch norm), everywhere.
    """
    depth: int | None = getattr(model, "num_layers", None)
    everywhere = torch.arange(len(shard.split), device=shard.split.device)
    every = any(getattr(module, "needs_every_vertex", False) for module in model.modules())
    if depth is None or every or not shard.graph.savings.active_sets:
        return shard.graph, everywhere
    rows = shard.train_rows
    view = shard.graph.layered(shard.graph.columns[rows.cpu().numpy()], depth)
    if not view.whole:
        view.constant = shard.features[shard.place(view.columns)]
    return view, everywhere if view.at(depth - 1).whole else rows
