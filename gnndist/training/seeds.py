"""One training, or the same with several seeds: mean and standard deviation."""

import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from gnndist.comm import Comm
from gnndist.graph import SPLITS
from gnndist.store import Store
from gnndist.training.config import TrainConfig
from gnndist.training.disk import writing
from gnndist.training.run import Line, train_rank
from gnndist.training.rundir import RunDir

View = Callable[[TrainConfig], AbstractContextManager[Callable[[Line], None]]]
"""a config → what is told the figures of each epoch of its training"""


def train_seeds(
    store: Store,
    config: TrainConfig,
    run: RunDir,
    seeds: Sequence[int],
    comm: Comm,
    device: torch.device,
    view: View,
    **options: Any,
) -> Line:
    """Train as one rank of a job, once for each seed (`train_rank` takes the options).

    No seeds: one training, in `run` itself. Seeds that have a result already are not trained
    again, so that a job that was interrupted goes on where it was.
    """
    if not seeds:
        with view(config) as on_epoch:
            return train_rank(store, config, run, comm, device, on_epoch, **options)
    results: list[Line] = []
    for seed in seeds:
        one, its = run.of_seed(seed), replace(config, seed=seed)
        done = one.result() if comm.rank == 0 and one.has_result else None
        done = comm.all_gather(done)[0]
        if done is None:
            if comm.rank == 0:
                with writing("the config", one.path):
                    one.path.mkdir(exist_ok=True)
                    one.write_config(its, store, comm.world)
            with view(its) as on_epoch:
                done = train_rank(store, its, one, comm, device, on_epoch, **options)
        results.append(done)
    summary = summarize(seeds, results)
    if comm.rank == 0:
        with writing("the results", run.path):
            run.write_result(summary)
    return summary


def summarize(seeds: Sequence[int], results: Sequence[Line]) -> Line:
    """Mean and standard deviation (of a sample) of every figure of every split."""
    names = [name for name in results[0] if name.partition("_")[0] in SPLITS]
    figures = {name: [result[name] for result in results] for name in names}
    several = len(results) > 1
    return {
        "seeds": list(seeds),
        "mean": {name: statistics.fmean(values) for name, values in figures.items()},
        "std": {
            name: statistics.stdev(values) if several else 0.0 for name, values in figures.items()
        },
        "figures": figures,
        "best_epochs": [result["best_epoch"] for result in results],
        "mean_epoch_s": statistics.fmean(result["mean_epoch_s"] for result in results),
        "ranks": results[-1]["ranks"],
    }
