"""What a run keeps of its ranks: seconds by phase, bytes by peer; tables and TensorBoard."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import awkward
from rich.console import Console
from threads import run_threads

from gnndist import job
from gnndist.cli.profile_table import profile_table
from gnndist.comm import Comm, Meter
from gnndist.errors import GnndistError
from gnndist.store import Store, write_store
from gnndist.training.breakdown import PARTS, EpochParts
from gnndist.training.config import TrainConfig
from gnndist.training.run import train_rank
from gnndist.training.rundir import RunDir
from gnndist.training.tally import Tally
from gnndist.units import duration, size

CPU = torch.device("cpu")


def reading(sent: dict[int, int], wait_s: float = 0.0, reduce_s: float = 0.0) -> Meter:
    meter = Meter(wait_s=wait_s, reduce_s=reduce_s)
    for peer, count in sent.items():
        meter.sent(peer, count)
    return meter


def test_a_meter_that_is_read_starts_again() -> None:
    meter = reading({1: 8, 2: 4})
    first = meter.take()
    meter.sent(1, 2)
    assert (first.bytes_to, first.bytes_sent, first.messages_sent) == ({1: 8, 2: 4}, 12, 2)
    assert (meter.bytes_to, meter.bytes_sent, meter.messages_sent) == ({1: 2}, 2, 1)


def test_the_first_epoch_counts_only_while_alone() -> None:
    tally = Tally()
    tally.add(9.0, 8.0, reading({1: 100}, wait_s=1.0, reduce_s=2.0))
    assert tally.figures(2)["compute_s"] == 6.0
    assert tally.figures(2)["bytes_to"] == [0, 100]
    tally.add(3.0, 2.0, reading({1: 10}, wait_s=0.5, reduce_s=0.5))
    tally.add(5.0, 3.0, reading({1: 20, 2: 4}, wait_s=1.5, reduce_s=0.5))
    found = tally.figures(3)
    assert found["epochs"] == 2
    assert (found["epoch_s"], found["wait_s"], found["reduce_s"]) == (4.0, 1.0, 0.5)
    assert found["epoch_s"] == found["compute_s"] + found["wait_s"] + found["reduce_s"]
    assert found["cpu_s"] == 2.5
    assert found["bytes_to"] == [0, 15, 2]
    assert found["messages_sent"] == 1.5


def test_figures_of_no_epoch() -> None:
    assert Tally().figures(2)["bytes_to"] == [0, 0]


def train(comm: Comm, store: Path, run: RunDir, config: TrainConfig) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    train_rank(Store.open(store), config, run, comm, CPU, lines.append)
    return lines


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    folder = tmp_path_factory.mktemp("tally")
    write_store(awkward(), folder / "store", cells=8)
    config = TrainConfig(epochs=4, hidden=5, device="cpu", tensorboard=True)
    run = RunDir.create(folder / "run")
    run.write_config(config, Store.open(folder / "store"), 3)
    run_threads(train, 3, folder / "store", run, config)
    return run


def test_every_rank_is_kept(run: RunDir) -> None:
    ranks = json.loads((run.path / "ranks.json").read_text())["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1, 2]
    assert sum(rank["vertices"] for rank in ranks) == awkward().num_vertices
    assert sum(rank["edges"] for rank in ranks) == awkward().num_edges
    assert sum(rank["halo"] for rank in ranks) == run.result()["halo"]
    assert all(rank["epochs"] == 3 for rank in ranks)
    assert all(rank["cpu_s"] > 0 for rank in ranks)
    assert all(rank["evaluations"] == 4 for rank in ranks)
    assert all(rank["bytes_to"][rank["rank"]] == 0 for rank in ranks)
    # An epoch's bytes are the same from epoch to epoch, so the means add up to the last line's.
    assert sum(sum(rank["bytes_to"]) for rank in ranks) == run.result()["bytes_sent_per_epoch"] > 0


def test_tensorboard_has_what_the_lines_have(run: RunDir) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = events.EventAccumulator(str(run.tensorboard))
    board.Reload()
    tags = {"loss/train": "loss", "accuracy/valid": "valid_accuracy", "macro_f1/test": None}
    tags |= {"time/epoch (s)": "epoch_s", "exchange/bytes sent": "bytes_sent"}
    assert tags.keys() <= set(board.Tags()["scalars"])
    for tag, name in tags.items():
        points = [(event.step, event.value) for event in board.Scalars(tag)]
        assert [step for step, _ in points] == [1, 2, 3, 4]
        if name is not None:
            told = [line[name] for line in run.metrics()]
            assert [value for _, value in points] == pytest.approx(told, rel=1e-6)


def test_tensorboard_missing_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(awkward(), tmp_path / "store", cells=8)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(GnndistError, match=r"--tensorboard needs .*gnndist\[tensorboard\]"):
        job.train(tmp_path / "store", TrainConfig(tensorboard=True), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def epochs_of(seconds: float) -> list[EpochParts]:
    parts = dict.fromkeys(PARTS, seconds)
    total = sum(parts.values())
    return [EpochParts(epoch=e, epoch_s=total, parts=parts, hidden_s=0.004) for e in (3, 4, 5)]


def table_text(ranks: list[list[EpochParts]]) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(profile_table(ranks))
    return capture.get()


def test_profile_table() -> None:
    text = table_text([epochs_of(0.001), epochs_of(0.002)])
    rows = [line.split("│") for line in text.splitlines() if line.startswith("│")]
    by_name = {row[1].strip(): [cell.strip() for cell in row[2:-1]] for row in rows}
    assert by_name["local sparse"] == ["1.00  14%", "2.00  14%"]
    assert by_name["epoch"] == ["7.00 100%", "14.00 100%"]
    assert by_name["exchange, hidden"] == ["4.00", "4.00"]
    assert "epochs 3 to 5" in text


def test_profile_table_of_many_ranks_shows_the_fastest_and_the_slowest() -> None:
    text = table_text([epochs_of(0.001 * (1 + rank)) for rank in range(20)])
    assert "rank 0" in text
    assert "rank 19" in text
    assert "rank 10" not in text
    assert profile_table([[], []]) is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (size(0), "0 B"),
        (size(999.4), "999 B"),
        (size(999.6), "1 kB"),
        (size(19_440_000), "19.4 MB"),
        (size(2.5e18), "2.5e+03 PB"),
        (duration(0.00597), "5.97 ms"),
        (duration(0.9999), "1 s"),
        (duration(119.4), "119 s"),
        (duration(720), "12 min"),
        (duration(11_160), "3.1 h"),
    ],
)
def test_bytes_and_seconds_for_people(words: str, expected: str) -> None:
    assert words == expected
