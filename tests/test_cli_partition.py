"""`gnndist partition`: from a name or a file to a store, and what it says about mistakes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fixed_rates import FixedRates

from gnndist.cli import main
from gnndist.inspection.rates import Rates
from gnndist.store import Store


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["gnndist", "partition", *map(str, arguments)])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A file with a small graph."""
    rng = np.random.default_rng(0)
    path = tmp_path / "small.npz"
    np.savez(
        path,
        edge_index=rng.integers(0, 30, (2, 90)),
        node_feat=rng.normal(size=(30, 4)).astype(np.float32),
        node_label=rng.integers(0, 3, 30),
    )
    return path


def test_digits_in_one_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "digits", "--out", tmp_path / "s") == 0
    said = capsys.readouterr().out
    store = Store.open(tmp_path / "s")
    store.verify()
    assert store.num_vertices == 1797
    assert "1,797 vertices" in said
    assert "16 cells by metis" in said
    ranks = [line.split()[0] for line in said.splitlines() if line.split()[:1] != []]
    assert [r for r in ranks if r in {"2", "4", "8", "16"}] == ["2", "4", "8", "16"]


def test_options_reach_the_store(
    monkeypatch: pytest.MonkeyPatch, archive: Path, tmp_path: Path
) -> None:
    options = ["--cells", 5, "--method", "random", "--seed", 4, "--directed", "--split-seed", 2]
    options += ["--vertex-work", 3]
    assert run(monkeypatch, archive, "--out", tmp_path / "a", *options) == 0
    manifest = Store.open(tmp_path / "a").manifest
    assert manifest.partitioning == {"method": "random", "seed": 4, "vertex_work": 3}
    assert len(manifest.cell_edges) == 5
    assert not manifest.symmetric
    assert run(monkeypatch, archive, "--out", tmp_path / "b", *options) == 0
    assert Store.open(tmp_path / "b").fingerprint == manifest.fingerprint


def test_your_own_assignment(
    monkeypatch: pytest.MonkeyPatch, archive: Path, tmp_path: Path
) -> None:
    own = np.arange(30) % 3
    np.save(tmp_path / "own.npy", own)
    assert (
        run(monkeypatch, archive, "--out", tmp_path / "s", "--assignment", tmp_path / "own.npy")
        == 0
    )
    store = Store.open(tmp_path / "s")
    assert store.cell_offsets.tolist() == [0, 10, 20, 30]
    assert np.array_equal(own[store.original_ids(0, 30)], np.sort(own))


@pytest.mark.parametrize("how", [["--method", "random"], ["--method", "ldg"], []])
def test_the_work_of_a_vertex_is_measured_told_and_kept(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    archive: Path,
    tmp_path: Path,
    how: list[object],
) -> None:
    monkeypatch.setattr(Rates, "of_this_machine", classmethod(lambda cls: FixedRates()))
    np.save(tmp_path / "own.npy", np.arange(30) % 3)
    how = how or ["--assignment", tmp_path / "own.npy"]
    measured = ["--vertex-work", "measured", "--hidden", 256, "--layers", 3]
    assert run(monkeypatch, archive, "--out", tmp_path / "a", *how, *measured) == 0
    manifest = Store.open(tmp_path / "a").manifest
    work = manifest.partitioning["vertex_work"]
    assert isinstance(work, int)
    assert work > 1
    said = capsys.readouterr().out
    assert f"a vertex costs as much as {work:,} edges on this machine (gcn, 3 layers" in said
    assert run(monkeypatch, archive, "--out", tmp_path / "b", *how, "--vertex-work", work) == 0
    assert Store.open(tmp_path / "b").fingerprint == manifest.fingerprint


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cells", "31"], "31 cells: allowed are 1 to 30"),
        (["--cells", "many"], "'many'"),
        (["--method", "magic"], "'magic' is not one of 'metis'"),
        (["--seed", "-3"], "seed -3"),
        (["--split", "odd"], "odd"),
        (["--assignment", "nowhere.npy"], "nowhere.npy"),
        (["--vertex-work", "-1"], "vertex work -1: allowed is 0 or more"),
        (["--vertex-work", "many"], "'many': allowed are numbers of edges from 0, and measured"),
        (["--hidden", "8"], "--hidden needs --vertex-work measured"),
        (["--config", "x.toml", "--vertex-work", "2"], "--config needs --vertex-work measured"),
        (["--vertex-work", "measured", "--hidden", "0"], "hidden"),
        (["--vertex-work", "measured", "--model", "magic"], "magic"),
        (["--vertex-work", "measured", "--config", "nowhere.toml"], "nowhere.toml"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_options_exit_with_2_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    archive: Path,
    tmp_path: Path,
    options: list[str],
    said: str,
) -> None:
    before = set(tmp_path.iterdir())
    assert run(monkeypatch, archive, "--out", tmp_path / "s", *options) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("dataset", ["no-such-graph", "no/such/file.npz"])
def test_unknown_data(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    dataset: str,
) -> None:
    assert run(monkeypatch, dataset, "--out", tmp_path / "s") == 2
    assert dataset in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_output_in_the_way_is_refused_before_reading(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "notes").write_text("mine")
    assert run(monkeypatch, "digits", "--out", tmp_path / "s", "--overwrite") == 2
    captured = capsys.readouterr()
    assert "not a store" in captured.err
    assert captured.out == ""


def test_bad_assignments(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    archive: Path,
    tmp_path: Path,
) -> None:
    own = tmp_path / "own.npy"
    for array, said in [
        (np.zeros(29, np.int64), "(29,)"),
        (np.zeros(30), "float64"),
        (np.full(30, -1), "cell -1"),
        (np.array([object()]), "not a .npy file of integers"),
    ]:
        np.save(own, array, allow_pickle=True)
        assert run(monkeypatch, archive, "--out", tmp_path / "s", "--assignment", own) == 2
        assert said in capsys.readouterr().err
    np.save(own, np.zeros(30, np.int64))
    options = ["--assignment", own, "--cells", 4]
    assert run(monkeypatch, archive, "--out", tmp_path / "s", *options) == 2
    assert "assignment alone" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_help_shows_an_example_and_fits_a_screen() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gnndist", "partition", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert "gnndist partition digits --out" in done.stdout
    assert len(done.stdout.splitlines()) <= 40


def test_the_script_by_path(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "partition" / "partition_graph.py"
    subprocess.run([sys.executable, str(script), str(tmp_path / "s")], check=True, timeout=120)
    store = Store.open(tmp_path / "s")
    store.verify()
    assert store.manifest.split_sizes["train"] > 0
    assert store.manifest.num_features > 0
