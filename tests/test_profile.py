"""`--profile` on real ranks: which epochs, a trace a rank, parts that add up, the same training."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import awkward
from processes import run_ranks
from threads import run_threads

from gnndist.comm import Comm, SingleComm, _Done
from gnndist.ranges import EPOCH, POST, WAIT
from gnndist.store import Store, write_store
from gnndist.training.config import TrainConfig
from gnndist.training.loop import Trainer
from gnndist.training.profile import Profile
from gnndist.training.profiled_comm import Flight, ProfiledComm, Watchers
from gnndist.training.run import train_rank
from gnndist.training.rundir import RunDir

CPU = torch.device("cpu")
CONFIG = TrainConfig(layers=2, hidden=6, epochs=6, device="cpu", profile=True)


def profiled_epochs(folder: Path, epochs: int, numbers: range) -> list[int]:
    profile = Profile(SingleComm(), CPU, epochs)
    for number in numbers:
        with profile.epoch(number):
            torch.ones(3).add_(1)
    (found,) = profile.finish(folder)
    return [epoch.epoch for epoch in found]


@pytest.mark.parametrize(
    ("epochs", "numbers", "expected"),
    [
        (10, range(1, 11), [3, 4, 5]),
        (5, range(1, 6), [3, 4, 5]),
        (3, range(1, 4), [3]),
        (2, range(1, 3), [2]),
        (1, range(1, 2), [1]),
        pytest.param(9, range(7, 10), [9], id="resumed at 7 of 9"),
        pytest.param(10, range(1, 5), [3, 4], id="stopped early"),
        pytest.param(10, range(1, 2), [], id="stopped before"),
    ],
)
def test_steady_epochs_are_profiled(
    tmp_path: Path, epochs: int, numbers: range, expected: list[int]
) -> None:
    assert profiled_epochs(tmp_path / "trace", epochs, numbers) == expected
    assert (tmp_path / "trace" / "rank-0.json").exists() == bool(expected)


def train(comm: Comm, store: Path, run: Path, config: TrainConfig) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    opened, folder = Store.open(store), RunDir(path=run)
    if comm.rank == 0:
        folder = RunDir.create(run)
        folder.write_config(config, opened, comm.world)
    train_rank(opened, config, folder, comm, CPU, lines.append)
    return lines


def assert_nested(events: list[dict[str, Any]]) -> None:
    """A viewer leaves out ranges that overlap others of their thread without lying in them."""
    threads: dict[Any, list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] == "X":
            threads.setdefault((event["pid"], event["tid"]), []).append(event)
    rounding = 0.005
    for ranges in threads.values():
        stack: list[float] = []
        for event in sorted(ranges, key=lambda e: (e["ts"], -e["dur"])):
            while stack and stack[-1] <= event["ts"] + rounding:
                stack.pop()
            end = event["ts"] + event["dur"]
            assert not stack or end <= stack[-1] + rounding, event
            stack.append(end)


@pytest.mark.slow
def test_two_ranks_over_gloo(tmp_path: Path) -> None:
    write_store(awkward(), tmp_path / "store", cells=8)
    lines = run_ranks(train, 2, tmp_path / "store", tmp_path / "run", CONFIG)
    ranks = RunDir.open(tmp_path / "run").profile()
    assert [[epoch.epoch for epoch in epochs] for epochs in ranks] == [[3, 4, 5]] * 2
    for epoch in (epoch for epochs in ranks for epoch in epochs):
        assert sum(epoch.parts.values()) == pytest.approx(epoch.epoch_s, rel=1e-9)
        assert all(
            epoch.parts[part] > 0
            for part in ("sparse", "dense", "elementwise", "exchange", "reduce", "optimizer")
        )
    # In one epoch of a tiny graph a rank may find everything there, or wait for all of it.
    assert sum(epoch.hidden_s for epochs in ranks for epoch in epochs) > 0
    for rank in range(2):
        trace = json.loads((tmp_path / "run" / "trace" / f"rank-{rank}.json").read_text())
        events = trace["traceEvents"]
        count = Counter(event["name"] for event in events if event["ph"] == "X")
        assert [count[f"{EPOCH} {number}"] for number in range(1, 7)] == [0, 0, 1, 1, 1, 0]
        assert count["Optimizer.step#Adam.step"] == 3
        assert count[POST] == count[WAIT] > 0
        assert_nested(events)
        flights = Counter(event["ph"] for event in events if event.get("cat") == "exchange")
        assert flights == {"b": count[POST], "e": count[POST]}
        assert {"name": f"rank {rank}"} in [event.get("args") for event in events]
    # Exchanges that a thread watched are metered as ever: the same bytes in every epoch.
    assert len({line["bytes_sent"] for line in lines[0][1:]}) == 1
    assert all(0 < line["wait_s"] < line["epoch_s"] for line in lines[0][1:])


def test_one_rank_exchanges_nothing(tmp_path: Path) -> None:
    write_store(awkward(), tmp_path / "store", cells=8)
    train(SingleComm(), tmp_path / "store", tmp_path / "run", CONFIG)
    (epochs,) = RunDir.open(tmp_path / "run").profile()
    assert [epoch.epoch for epoch in epochs] == [3, 4, 5]
    for epoch in epochs:
        assert epoch.parts["exchange"] == epoch.hidden_s == 0
        assert sum(epoch.parts.values()) == pytest.approx(epoch.epoch_s, rel=1e-9)


def test_a_profiled_comm_changes_nothing_and_meters_alike(tmp_path: Path) -> None:
    write_store(awkward(), tmp_path / "store", cells=8)

    def losses(comm: Comm, wrap: bool) -> Any:
        used: Comm = comm
        if wrap:
            used = ProfiledComm(comm)
            used.watch(True)  # every exchange watched by a thread; nothing recorded
        config = TrainConfig(hidden=6, epochs=4, device="cpu")
        trainer = Trainer.create(Store.open(tmp_path / "store"), config, used, CPU)
        with torch.no_grad():  # threads share the generator that the weights come from
            for parameter in trainer.model.parameters():
                parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
        found = [trainer.step(epoch) for epoch in range(1, 5)]
        return found, used.meter.bytes_to, used.meter.messages_sent

    assert run_threads(losses, 3, True) == run_threads(losses, 3, False)


class Gate:
    """A message that arrives when the test says so."""

    def __init__(self, error: Exception | None = None) -> None:
        self.open = threading.Event()
        self.error = error

    def wait(self) -> None:
        assert self.open.wait(timeout=30)
        if self.error:
            raise self.error


def test_an_arrival_is_noted_before_anybody_asks() -> None:
    late, early = Flight(size=8), Flight(size=8)
    watchers, gate = Watchers(2), Gate()
    never = watchers.watch(gate, late, begin=0.0)
    watched = watchers.watch(_Done(), early, begin=0.0)
    watched.wait()
    arrived = early.seconds
    assert arrived > 0
    assert late.seconds == 0
    gate.open.set()
    never.wait()
    assert late.seconds >= early.seconds == arrived
    watchers.dismiss()
    for thread in watchers._threads:
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_what_goes_wrong_on_the_way_is_raised_to_who_waits() -> None:
    gate = Gate(RuntimeError("connection closed by peer"))
    watched = Watchers(1).watch(gate, Flight(size=8), begin=0.0)
    gate.open.set()
    with pytest.raises(RuntimeError, match="closed by peer"):
        watched.wait()
