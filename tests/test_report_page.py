"""`gnndist report`: pages of real runs, opened in a real browser."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import browser
import plotly.graph_objects as go
import pytest
import torch
from click.testing import CliRunner
from graphs import awkward
from threads import run_threads

from gnndist.cli import cli
from gnndist.comm import Comm
from gnndist.errors import GnndistError, RunError
from gnndist.report import page, read_runs, report
from gnndist.report.rank_charts import rank_times, traffic
from gnndist.store import Store, write_store
from gnndist.training.breakdown import PARTS, EpochParts
from gnndist.training.config import TrainConfig
from gnndist.training.run import train_rank
from gnndist.training.rundir import RunDir

CPU = torch.device("cpu")


def train(comm: Comm, store: Path, run: RunDir, config: TrainConfig) -> None:
    train_rank(Store.open(store), config, run, comm, CPU, lambda line: None)


def profile_of(rank: int) -> list[EpochParts]:
    parts = dict.fromkeys(PARTS, 0.001 * (rank + 1))
    return [
        EpochParts(epoch=e, epoch_s=sum(parts.values()), parts=parts, hidden_s=0.0005)
        for e in (3, 4)
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """three: 3 ranks with a profile; two: 2 ranks, wider; half: one that was killed."""
    folder = tmp_path_factory.mktemp("report")
    write_store(awkward(), folder / "store", cells=8)
    for name, ranks, options in (("three", 3, {"hidden": 6}), ("two", 2, {"hidden": 9})):
        config = TrainConfig(epochs=8, device="cpu", threads=1, **options)  # type: ignore[arg-type]
        run = RunDir.create(folder / name)
        run.write_config(config, Store.open(folder / "store"), ranks)
        run_threads(train, ranks, folder / "store", run, config)
    RunDir.open(folder / "three").write_profile([profile_of(rank) for rank in range(3)])
    half = folder / "half"
    shutil.copytree(folder / "two", half)
    for name in ("result.json", "ranks.json", "model.safetensors"):
        (half / name).unlink()
    lines = (half / "metrics.jsonl").read_text().splitlines()
    (half / "metrics.jsonl").write_text("\n".join(lines[:5]) + '\n{"epoch": 6, "lo')
    RunDir(path=half).note_end(
        "failed", "rank 1 on here (epoch 5, backward): RuntimeError: <b>no</b>"
    )
    return folder


def opened(runs: Path, *names: str) -> browser.Opened:
    out = runs / f"{'-'.join(names)}.html"
    report([runs / name for name in names], out)
    found = browser.open_page(out)
    assert found.console == []
    return found


def charts_of(text: str) -> dict[str, Any]:
    found = re.search(
        r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL
    )
    assert found
    charts: dict[str, Any] = json.loads(found[1])
    return charts


def count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text))


def chart(dom: str, name: str) -> str:
    """The part of a document that is one chart."""
    start = dom.index(f'id="{name}"')
    following = re.compile(r'<div class="chart|</main>').search(dom, start)
    assert following
    return dom[start : following.start()]


def test_one_run(runs: Path) -> None:
    dom = opened(runs, "three").dom
    assert f'data-drawn="{count("class=.chart", dom)}"' in dom
    assert count('class="js-line', chart(dom, "loss")) == 1
    # a line a split, each drawn once in the plot and once in the legend
    assert count('class="js-line', chart(dom, "metric-accuracy")) == 6
    assert count('class="trace bars', chart(dom, "rank-time")) == 3
    assert count('class="point"', chart(dom, "rank-time")) >= 9
    assert count('class="trace bars', chart(dom, "profile")) == len(PARTS)
    assert "hidden behind other work: 0.5 ms to 0.5 ms" in dom
    heat = chart(dom, "traffic-0")
    assert count('class="hm"', heat) == 1
    assert count("<image", heat) == 1
    sent = [
        bytes_to for rank in read_runs([runs / "three"])[0].ranks for bytes_to in rank["bytes_to"]
    ]
    assert count('class="annotation-text"', heat) == sum(size > 0 for size in sent) > 0
    for heading in ("Curves", "Time", "Traffic", "Ranks", "Config", "Environment"):
        assert f"<h2>{heading}</h2>" in dom
    assert "differs" not in dom.partition("</style>")[2]
    assert torch.__version__ in dom


def test_several_runs_are_overlaid_and_their_differences_marked(runs: Path) -> None:
    dom = opened(runs, "three", "two", "half").dom
    assert count('class="js-line', chart(dom, "loss")) == 3
    assert count('class="js-line', chart(dom, "valid-accuracy")) == 3
    rows = re.findall(r'<tr class="differs"><th scope="row">(.*?)</th>', dom)
    assert "hidden" in rows
    assert "ranks" in rows
    assert not {"epochs", "lr", "command", "run directory"} & set(rows)
    assert count('class="number best"', dom) >= 1
    assert "failed, epoch 5/8" in " ".join(dom.split())
    assert "RuntimeError: &lt;b&gt;no&lt;/b&gt;" in dom  # what runs say is text, not markup


def test_a_run_without_an_epoch(runs: Path) -> None:
    empty = runs / "empty"
    shutil.copytree(runs / "half", empty, dirs_exist_ok=True)
    for name in ("metrics.jsonl", "ended.json"):
        (empty / name).unlink()
    dom = opened(runs, "empty").dom
    assert "No epoch has finished." in dom
    assert "unfinished, epoch 0/8" in " ".join(dom.split())


def test_an_error_in_a_page_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text("<p>x</p><script>throw new Error('seen')</script>")
    found = browser.open_page(tmp_path / "bad.html")
    assert any("seen" in line for line in found.console)


def test_nothing_is_loaded_from_elsewhere(runs: Path) -> None:
    text = page.render(read_runs([runs / "three", runs / "two"]))
    outside_scripts = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!data:)', outside_scripts)
    assert "url(" not in outside_scripts
    assert not re.search(r"<script[^>]+src", text)


def test_charts_are_figures_of_plotly(runs: Path) -> None:
    for names in (["three"], ["three", "two", "half"]):
        charts = charts_of(page.render(read_runs([runs / name for name in names])))
        assert len(charts) >= 6
        for figure in charts.values():
            go.Figure(figure)  # raises where it has a property that plotly does not know


def test_names_and_figures_that_could_break_the_page(runs: Path) -> None:
    odd = runs / "</script><script>alert(1)</script>"
    shutil.copytree(runs / "two", odd, dirs_exist_ok=True)
    with (odd / "metrics.jsonl").open("a") as file:
        line = {"epoch": 9, "loss": float("nan"), "epoch_s": 0.1, "bytes_sent": 0}
        file.write(json.dumps(line | {"valid_accuracy": float("inf")}) + "\n")
    text = page.render(read_runs([odd, runs / "two"]))
    charts = charts_of(text)
    assert charts["loss"]["data"][0]["y"][-1] is None
    assert charts["loss"]["data"][0]["name"].endswith("script>")
    assert "<script>alert" not in text


def test_runs_that_send_the_same_share_a_heat_map(runs: Path) -> None:
    again = runs / "again"
    shutil.copytree(runs / "two", again, dirs_exist_ok=True)
    charts = page.traffic_charts(read_runs([runs / "three", runs / "two", again]))
    assert [chart.title for chart in charts] == ["three", "two, again"]
    assert charts[0].figure["data"][0]["zmax"] == charts[1].figure["data"][0]["zmax"] > 0


def test_ranks_of_many_runs_share_a_bar(runs: Path) -> None:
    few = rank_times(read_runs([runs / "three", runs / "two"]))
    assert few["data"][0]["y"] == [f"three · rank {k}" for k in range(3)] + [
        f"two · rank {k}" for k in range(2)
    ]
    (two,) = read_runs([runs / "two"])
    many = rank_times([two] * 13)
    assert many["data"][0]["y"] == ["two"] * 13
    mean = sum(rank["compute_s"] for rank in two.ranks) / 2
    assert many["data"][0]["x"] == pytest.approx([1000 * mean] * 13)


def test_traffic_of_many_ranks_has_no_labels(runs: Path) -> None:
    (run,) = read_runs([runs / "three"])
    run.ranks[:] = [{"bytes_to": [float(a != b) for b in range(40)]} for a in range(40)]
    figure = traffic(run, peak=1.0)
    assert figure["layout"]["annotations"] == []
    assert figure["data"][0]["showscale"]
    assert [row[k] for k, row in enumerate(figure["data"][0]["z"])] == [None] * 40


def test_command_line(runs: Path, tmp_path: Path) -> None:
    arguments = [
        "report",
        str(runs / "three"),
        str(runs / "two"),
        "--out",
        str(tmp_path / "x.html"),
    ]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert "2 runs" in done.output
    assert (tmp_path / "x.html").stat().st_size > 1_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["x.html"]
    again = CliRunner().invoke(cli, arguments)
    assert isinstance(again.exception, RunError)
    assert "--overwrite" in str(again.exception)
    assert CliRunner().invoke(cli, [*arguments, "--overwrite"]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "{runs}/store", "--out", "{tmp}/x.html"], "is not a run"),
        (["report", "{runs}/three", "--out", "{tmp}"], "is a directory"),
        (["report", "{runs}/three", "--out", "{tmp}/no/x.html"], "is not a directory"),
    ],
)
def test_mistakes(runs: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    told = [word.format(runs=runs, tmp=tmp_path) for word in arguments]
    done = CliRunner().invoke(cli, told)
    assert isinstance(done.exception, RunError)
    assert message in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_missing_packages_are_named(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(GnndistError, match=r"plotly.*gnndist\[report\]"):
        report([runs / "three"], tmp_path / "x.html")
