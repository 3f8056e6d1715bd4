"""`gnndist inspect`: tables, JSON, the picture, the advice and the mistakes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from fixed_rates import FixedRates
from graphs import awkward

from gnndist.cli import cli
from gnndist.graph import Graph
from gnndist.inspection.advice import warnings
from gnndist.inspection.network import Network
from gnndist.inspection.prediction import Inspection, Inspector, imbalance
from gnndist.inspection.rates import Rates
from gnndist.store import Store, write_store
from gnndist.training.config import TrainConfig
from gnndist.training.rundir import RunDir


@pytest.fixture(autouse=True)
def no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Rates, "of_this_machine", classmethod(lambda cls, again=False: FixedRates())
    )
    monkeypatch.setattr("gnndist.inspection.prediction.step_overhead", lambda *_: 1e-6)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("inspect")
    return write_store(awkward(vertices=120), folder / "store", cells=8)


def inspect(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["inspect", *map(str, arguments)])


def data(*arguments: object) -> dict[str, Any]:
    result = inspect(*arguments, "--json")
    assert result.exit_code == 0, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def at(store: Store, ranks: int, **options: Any) -> Inspection:
    config = TrainConfig(**({"hidden": 8} | options))
    return Inspector(store, config, Network(), FixedRates()).at(ranks)


def test_json_holds_every_figure(store: Store) -> None:
    found = data(store.path, "--ranks", "1,3", "--hidden", 8, "--bandwidth", "1Gbit")
    assert found["fingerprint"] == store.fingerprint
    assert found["config"]["hidden"] == 8
    assert found["network"]["bandwidth"] == pytest.approx(1.25e8)
    assert found["network"]["latency"] == pytest.approx(50e-6)
    one, three = found["inspections"]
    assert (one["ranks"], three["ranks"]) == (1, 3)
    assert sum(three["owned"]) == store.num_vertices
    assert sum(three["edges"]) == store.num_edges
    assert sum(three["train"]) == store.manifest.split_sizes["train"]
    assert one["pairs"] == {"from": [], "to": [], "plain": [], "covered": [], "bytes": []}
    pairs, epoch = three["pairs"], three["epoch"]
    received = np.bincount(pairs["to"], weights=pairs["plain"], minlength=3)
    assert received.tolist() == three["halo"]
    sent = np.bincount(pairs["from"], weights=pairs["bytes"], minlength=3)
    assert sent.tolist() == epoch["bytes_sent_by_rank"]
    assert epoch["bytes_sent"] == sum(pairs["bytes"]) > 0
    assert epoch["bytes_sent_evaluating"] > 0
    blocked = np.array(epoch["wait_s"]) + np.array(epoch["reduce_s"])
    work = np.sum(list(epoch["work_s"].values()), axis=0)
    assert (work + blocked).tolist() == pytest.approx([epoch["epoch_s"]] * 3)
    assert max(epoch["core_s"]) <= 2 * work.max()  # a rank a host, of two cores
    assert min(epoch["core_s"]) >= work.min()
    memory = epoch["memory"]
    assert memory["host"] == memory["rank"]
    parts = np.array(memory["tensors"]) + memory["buffers"] + memory["graph"] + memory["process"]
    assert parts.tolist() == memory["rank"]


def test_tables_name_every_rank_count(store: Store) -> None:
    result = inspect(store.path, "--ranks", "2,3,5", "--ranks-per-host", 0, "--explain")
    assert result.exit_code == 0, result.output
    head = next(line for line in result.stdout.splitlines() if line.strip().startswith("ranks"))
    assert head.split() == ["ranks", "2", "3", "5"]
    for name in ("halo", "messages (covered)", "memory, largest rank", "time of an epoch", "sent"):
        assert name in result.stdout
    assert "5 ranks each" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    by_rank = lines[lines.index(["work", "of", "rank", "of", "2", "of", "3", "of", "5"]) :]
    rows = [line for line in by_rank if line and line[0].isdigit()]
    assert [(row[0], len(row)) for row in rows[:5]] == [
        *(("0", 7), ("1", 7), ("2", 5), ("3", 3), ("4", 3)),
    ]
    assert "without cover" in result.stdout


def test_the_whole_of_a_graph_without_features(tmp_path: Path) -> None:
    ring = np.arange(40)
    graph = Graph.from_edge_index(np.stack([ring, np.roll(ring, 1)]), num_vertices=40)
    write_store(graph, tmp_path / "ring", method="natural", cells=4)
    found = data(tmp_path / "ring", "--ranks", 4)
    assert found["config"] is None
    (one,) = found["inspections"]
    assert "epoch" not in one
    assert one["halo"] == [1, 1, 1, 1]


def test_graph_only_is_asked_for(store: Store) -> None:
    result = inspect(store.path, "--graph-only", "--ranks", 2)
    assert result.exit_code == 0
    assert "halo" in result.stdout
    assert "epoch" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ranks", "two"], "allowed are numbers from 1"),
        (["--ranks", "2,0"], "allowed are numbers from 1"),
        (["--ranks", "121"], "allowed are 1 to 120"),
        (["--bandwidth", "fast"], "10Gbit"),
        (["--latency", "50"], "50us"),
        (["--plot", "there/is/none.png"], "not a directory"),
        (["--plot", "picture.gif"], ".png"),
        (["--layers", "0"], "layers"),
        (["--run", "nowhere"], "not a run"),
    ],
)
def test_mistakes(store: Store, arguments: list[str], said: str) -> None:
    error = inspect(store.path, *arguments).exception
    assert said in str(error)


def test_matplotlib_missing_is_said_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    error = inspect(store.path, "--plot", tmp_path / "x.png").exception
    assert "gnndist[plot]" in str(error)


@pytest.mark.parametrize("extra", [[], ["--graph-only"]], ids=["model", "graph only"])
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_picture(store: Store, tmp_path: Path, suffix: str, extra: list[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"ranks{suffix}"
    result = inspect(store.path, "--ranks", "1,2,70", "--plot", path, *extra)
    assert result.exit_code == 0, result.output
    content = path.read_bytes()
    if suffix == ".png":
        width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
        assert content.startswith(b"\x89PNG")
        assert width > 1200
        assert height > 1200  # a row a number of ranks
    else:
        assert content.count(b"<image") >= 3  # a heat map each


def test_advice_on_a_random_partition(tmp_path: Path) -> None:
    store = write_store(awkward(vertices=120), tmp_path / "store", method="random", cells=8)
    lines = warnings(store, at(store, 8))
    assert any("halo larger than what they own" in line and "--method metis" in line
               for line in lines)  # fmt: skip
    assert any("--cells 16" in line for line in warnings(store, at(store, 9)))


def test_advice_on_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("memory" in line for line in warnings(store, at(store, 2)))
    monkeypatch.setattr("gnndist.inspection.advice.machine_memory", lambda: 1_000_000)
    assert any("GB of memory" in line for line in warnings(store, at(store, 2)))


def test_advice_on_balance(tmp_path: Path) -> None:
    # A dense half and a thin one: balanced by edges, one rank has most of the vertices.
    rng = np.random.default_rng(0)
    dense = rng.integers(0, 40, (2, 1500))
    thin = np.stack([np.arange(40, 640), np.roll(np.arange(40, 640), 1)])
    graph = Graph.from_edge_index(
        np.concatenate([dense, thin], axis=1),
        num_vertices=640,
        features=np.ones((640, 5), np.float32),
        labels=np.zeros(640, np.int64),
        num_classes=2,
        splits={"train": np.arange(640)},
    )
    store = write_store(graph, tmp_path / "store", method="natural", cells=16)
    found = at(store, 2, hidden=512)
    assert imbalance(found.owned) > 1.3
    (line,) = [line for line in warnings(store, found) if line.startswith("work")]
    fitted = found.vertex_work
    assert fitted is not None
    assert f"--vertex-work {fitted:.0f}" in line
    again = write_store(
        graph, tmp_path / "again", method="natural", cells=16, vertex_work=round(fitted)
    )
    better = at(again, 2, hidden=512)
    assert better.imbalances()["work"] < found.imbalances()["work"]
    assert not any(line.startswith("work") for line in warnings(again, better))


def test_a_vertex_costs_more_in_wide_layers(store: Store) -> None:
    widths = [
        Inspector(store, TrainConfig(hidden=hidden), Network(), FixedRates()).at(2).vertex_work
        for hidden in (8, 512)
    ]
    assert None not in widths
    assert widths[1] > 4 * widths[0]


def keep_ranks(run: RunDir, **figures: list[float]) -> None:
    """A run's figures by rank, made up."""
    common = {"compute_s": 1.0, "wait_s": 0.0, "reduce_s": 0.0, "epoch_s": 1.0}
    common |= {"peak_memory_bytes": 1e8}
    each = [
        dict(zip(figures, values, strict=True)) for values in zip(*figures.values(), strict=True)
    ]
    run.write_ranks([common | {"bytes_to": [0, 0, 0], "host": "here"} | one for one in each])


def test_each_ranks_processor_time_beside_its_prediction(store: Store, tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run")
    run.write_config(TrainConfig(hidden=8), store, 3)
    keep_ranks(run, cpu_s=[1.0, 2.0, 3.0], compute_s=[4.0, 4.0, 4.0])
    cores = data(store.path, "--run", run.path)["comparison"]["cores"]
    assert cores["measured"] == [1.0, 2.0, 3.0]
    assert (
        cores["predicted"]
        == data(store.path, "--ranks", 3, "--ranks-per-host", 0, "--hidden", 8)["inspections"][0][
            "epoch"
        ]["core_s"]
    )
    said = inspect(store.path, "--run", run.path).stdout
    assert "and 1.50, work" in said
    keep_ranks(run, compute_s=[4.0, 4.0, 4.0])  # as runs of before kept them
    assert "cores" not in data(store.path, "--run", run.path)["comparison"]


@pytest.mark.slow
def test_a_run_beside_its_prediction(store: Store, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained = CliRunner().invoke(
        cli, ["train", str(store.path), "--epochs", "3", "--hidden", "8", "--out", str(run)]
    )
    assert trained.exit_code == 0, trained.output
    found = data(store.path, "--run", run)
    assert found["config"]["hidden"] == 8
    assert [one["ranks"] for one in found["inspections"]] == [1]
    comparison = found["comparison"]
    assert comparison["sent"] == {"predicted": [0.0], "measured": [0.0]}
    assert comparison["epoch_s"]["measured"] > 0
    assert comparison["cores"]["measured"][0] > 0
    assert comparison["memory"]["measured"][0] > 50e6
    said = inspect(store.path, "--run", run)
    assert "measured" in said.stdout
    other = write_store(awkward(vertices=50), tmp_path / "other", cells=2)
    assert "has changed" in str(inspect(other.path, "--run", run).exception)
