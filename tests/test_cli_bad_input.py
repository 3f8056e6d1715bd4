"""Every mistake a user can make on the command line: one line, exit code 2, nothing half-written.

The line names the value at fault and what is allowed. Commands run in this process, which has
imported torch already.
"""

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from graphs import awkward
from jobs import start_forked

from gnndist import TrainConfig, job
from gnndist.cli import main
from gnndist.graph import Graph
from gnndist.store import FORMAT_VERSION, Store, write_store
from gnndist.training.rundir import RunDir


class Outcome(NamedTuple):
    code: int
    error: str


Command = Callable[..., Outcome]


@pytest.fixture
def gnndist(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """`gnndist ARGUMENTS`: its exit code and what it wrote to standard error."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["gnndist", *map(str, arguments)])
        capfd.readouterr()
        code: int | str | None = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        assert isinstance(code, int)
        return Outcome(code, capfd.readouterr().err)

    return run


@pytest.fixture
def refused(gnndist: Command, tmp_path: Path) -> Callable[..., None]:
    """`gnndist ARGUMENTS` ends with one line that says all of `said`, and leaves no file."""

    def check(*arguments: object, said: tuple[object, ...]) -> None:
        before = files(tmp_path)
        code, error = gnndist(*arguments)
        assert code == 2, error
        assert "Traceback" not in error
        assert len(error.strip().splitlines()) == 1, error
        assert error.startswith("gnndist: error: ")
        for part in said:
            assert str(part) in error
        assert files(tmp_path) == before

    return check


Refused = Callable[..., None]


def files(folder: Path) -> dict[str, tuple[int, float]]:
    """Every path below with its size and time, hidden ones included."""
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime)
        for path in folder.rglob("*")
        if not path.is_dir()
    }


def arrays(**changes: object) -> dict[str, np.ndarray]:
    """A small graph as an .npz holds it, with changes."""
    rng = np.random.default_rng(0)
    graph: dict[str, object] = {
        "edge_index": rng.integers(0, 20, (2, 60)),
        "node_feat": rng.standard_normal((20, 3)).astype(np.float32),
        "node_label": rng.integers(0, 4, 20),
        "train": np.arange(10),
        "valid": np.arange(10, 15),
        "test": np.arange(15, 20),
    }
    return {k: np.asarray(v) for k, v in (graph | changes).items() if v is not None}


@pytest.fixture
def npz(tmp_path: Path) -> Callable[..., Path]:
    """Write a small graph with changes; the path."""

    def write(**changes: object) -> Path:
        path = tmp_path / "graph.npz"
        np.savez(path, **arrays(**changes))
        return path

    return write


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(awkward(), tmp_path / "store", cells=8).path


# --- partition ----------------------------------------------------------------------------------


def test_the_graph_these_tests_spoil_is_fine(
    gnndist: Command, npz: Callable[..., Path], tmp_path: Path
) -> None:
    assert gnndist("partition", npz(), "--out", tmp_path / "store") == (0, "")
    assert Store.open(tmp_path / "store").num_vertices == 20


def test_unknown_data_set(refused: Refused, tmp_path: Path) -> None:
    said = ("'corra'", "did you mean 'cora'", "ogbn-arxiv")
    refused("partition", "corra", "--out", tmp_path / "store", said=said)


def test_missing_file(refused: Refused, tmp_path: Path) -> None:
    file = tmp_path / "none.npz"
    refused("partition", file, "--out", tmp_path / "store", said=(file,))


def edges_with(source: int, destination: int) -> np.ndarray:
    edges = arrays()["edge_index"].copy()
    edges[:, 7] = source, destination
    return edges


def features_with(value: float) -> np.ndarray:
    features = arrays()["node_feat"].copy()
    features[4, 2] = value
    return features


def labels_with(value: int) -> np.ndarray:
    labels = arrays()["node_label"].copy()
    labels[3] = value
    return labels


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"edge_index": edges_with(3, 20)}, ("20", "0 to 19"), id="no such vertex"),
        pytest.param({"edge_index": edges_with(-1, 3)}, ("-1", "0 to 19"), id="negative vertex"),
        pytest.param({"node_feat": np.ones((21, 3))}, ("21", "20"), id="too many features"),
        pytest.param({"node_label": np.zeros(21, int)}, ("21", "20"), id="too many labels"),
        pytest.param({"node_feat": features_with(np.nan)}, ("vertex 4", "nan"), id="nan"),
        pytest.param({"node_feat": features_with(np.inf)}, ("vertex 4", "inf"), id="inf"),
        pytest.param({"node_label": labels_with(-7)}, ("row 3", "-7"), id="label below 0"),
        pytest.param({"train": np.array([1, 99])}, ("99", "0 to 19"), id="split of no vertex"),
        pytest.param(
            {
                "edge_index": np.zeros((2, 0), int),
                "node_feat": np.zeros((0, 3)),
                "node_label": np.zeros(0, int),
                "train": np.zeros(0, int),
                "valid": np.zeros(0, int),
                "test": np.zeros(0, int),
            },
            ("no vert",),
            id="empty graph",
        ),
    ],
)
def test_a_graph_that_contradicts_itself(
    refused: Refused,
    npz: Callable[..., Path],
    tmp_path: Path,
    changes: dict[str, object],
    said: tuple[object, ...],
) -> None:
    refused("partition", npz(**changes), "--out", tmp_path / "store", said=said)


def test_labels_out_of_range(refused: Refused, tmp_path: Path) -> None:
    """A class beyond the number of classes, which a file in this layout states."""
    graph = awkward()
    labels = np.array(graph.labels)
    labels[2] = 9
    wrong = Graph(**{**vars(graph), "labels": labels})
    with pytest.raises(ValueError, match=r"vertex 2 has label 9: allowed are 0 to 3"):
        write_store(wrong, tmp_path / "store", cells=8)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "value"), [("--method", "metiss"), ("--cells", "0"), ("--cells", "many")]
)
def test_option_values_of_partition(
    refused: Refused, npz: Callable[..., Path], tmp_path: Path, option: str, value: str
) -> None:
    refused("partition", npz(), "--out", tmp_path / "store", option, value, said=(value,))


def test_an_output_that_is_not_empty(
    refused: Refused, gnndist: Command, npz: Callable[..., Path], store: Path, tmp_path: Path
) -> None:
    refused("partition", npz(), "--out", store, said=(store, "--overwrite"))
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    refused("partition", npz(), "--out", mine, "--overwrite", said=(mine, "not a store"))
    assert gnndist("partition", npz(), "--out", store, "--overwrite").code == 0
    assert Store.open(store).num_vertices == 20


# --- train --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "gnc"], ("'gnc'", "gcn", "sage", "package.module:Class")),
        (["--model", "no.such:Model"], ("'no.such:Model'", "does not import")),
        (["--lr", "fast"], ("'fast'",)),
        (["--lr", "0"], ("lr = 0", "more than 0")),
        (["--lr", "nan"], ("lr = nan",)),
        (["--epochs", "0"], ("epochs = 0", "1 and more")),
        (["--dropout", "1.5"], ("dropout = 1.5", "0 to 1")),
        (["--optimizer", "lion"], ("lion", "adam", "sgd")),
        (["--aggr", "max"], ("aggr = 'max'", "gcn")),
        (["--ranks", "0"], ("0", "x>=1")),
        (["--ranks", "41"], ("41 ranks", "1 to 40")),
        (["--no-such-option"], ("--no-such-option",)),
        (["--config", "none.toml"], ("none.toml",)),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_option_values_of_train(
    refused: Refused, store: Path, tmp_path: Path, arguments: list[str], said: tuple[object, ...]
) -> None:
    refused("train", store, "--out", tmp_path / "run", *arguments, said=said)


def test_a_gpu_that_is_not_there(refused: Refused, store: Path, tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    arguments = ("train", store, "--out", tmp_path / "run", "--device", "cuda")
    refused(*arguments, said=("cuda",))


@pytest.mark.parametrize(
    "arguments", [[], ["--resume", "nowhere"], ["--out", "a", "--resume", "b"]]
)
def test_train_without_what_it_needs(
    refused: Refused, store: Path, arguments: list[str], tmp_path: Path
) -> None:
    refused("train", store, *arguments, said=("nowhere",) if "nowhere" in arguments else ("--out",))


def test_no_training_vertex(refused: Refused, tmp_path: Path) -> None:
    graph = awkward()
    without = Graph(**{**vars(graph), "splits": {**graph.splits, "train": np.zeros(0, np.int64)}})
    store = write_store(without, tmp_path / "store", cells=8)
    refused("train", store.path, "--out", tmp_path / "run", said=("no training vertex",))


def test_early_stopping_without_validation(refused: Refused, tmp_path: Path) -> None:
    graph = awkward()
    without = Graph(**{**vars(graph), "splits": {"train": graph.splits["train"]}})
    store = write_store(without, tmp_path / "store", cells=8)
    arguments = ("train", store.path, "--out", tmp_path / "run", "--patience", "5")
    refused(*arguments, said=("patience = 5", "no validation"))


def test_not_a_store(refused: Refused, tmp_path: Path) -> None:
    arguments = ("train", tmp_path / "nothing", "--out", tmp_path / "run")
    refused(*arguments, said=("nothing", "not a store"))


def test_a_store_cut_short(refused: Refused, store: Path, tmp_path: Path) -> None:
    file = store / "indices-00.npy"
    file.write_bytes(file.read_bytes()[:-9])
    refused("train", store, "--out", tmp_path / "run", said=(file,))
    file.unlink()
    refused("train", store, "--out", tmp_path / "run", said=(file, "cut short"))


def test_a_store_of_another_format(refused: Refused, store: Path, tmp_path: Path) -> None:
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["format_version"] = 99
    (store / "manifest.json").write_text(json.dumps(manifest))
    refused("train", store, "--out", tmp_path / "run", said=(99, FORMAT_VERSION))


def test_an_altered_manifest(refused: Refused, store: Path, tmp_path: Path) -> None:
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["num_vertices"] += 1
    (store / "manifest.json").write_text(json.dumps(manifest))
    refused("train", store, "--out", tmp_path / "run", said=("altered",))


def test_an_altered_store(
    refused: Refused, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the ranks, which read the files: still one line, and no run directory."""
    monkeypatch.setitem(job.train.__kwdefaults__, "start", start_forked)
    file = store / "features-00.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    out = tmp_path / "run"
    refused("train", store, "--ranks", "2", "--out", out, said=(file, "altered", "checksum"))
    assert not out.exists()


def test_a_run_directory_that_is_not_empty(refused: Refused, store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunDir.create(run).write_config(TrainConfig(), Store.open(store), 1)
    refused("train", store, "--out", run, said=(run, "--overwrite"))
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    refused("train", store, "--out", mine, said=(mine, "not empty"))
    refused("train", store, "--out", mine, "--overwrite", said=(mine, "not a run"))


# --- evaluate and predict -----------------------------------------------------------------------


@pytest.fixture
def run(store: Path, tmp_path: Path) -> Path:
    """A finished run, made here."""
    out = tmp_path / "run"
    job.train(store, TrainConfig(epochs=2, hidden=4), out=out, start=start_forked, say=list)
    return out


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_not_a_run(refused: Refused, tmp_path: Path, verb: str) -> None:
    extra = ("--out", tmp_path / "p.npy") if verb == "predict" else ()
    refused(verb, tmp_path / "nothing", *extra, said=("nothing", "not a run"))


def test_a_finished_run_that_is_spoilt(refused: Refused, run: Path, tmp_path: Path) -> None:
    prediction = ("predict", run, "--out", tmp_path / "p.npy")
    refused("evaluate", run, "--ranks", "41", said=("41 ranks", "1 to 40"))
    refused("predict", run, "--out", tmp_path / "no" / "p.npy", said=("no",))
    (tmp_path / "p.npy").write_text("mine")
    refused(*prediction, said=("p.npy", "--overwrite"))
    (tmp_path / "p.npy").unlink()

    other = write_store(awkward(seed=1), tmp_path / "other", cells=8)
    theirs, ours = other.fingerprint, Store.open(tmp_path / "store").fingerprint
    refused("evaluate", run, "--store", other.path, said=("changed", theirs, ours))
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(other.path, tmp_path / "store")
    refused("evaluate", run, said=("changed", theirs, ours))
    refused(*prediction, said=("changed", theirs, ours))
    shutil.rmtree(tmp_path / "store")
    refused("evaluate", run, said=(tmp_path / "store", "not a store"))


def test_a_spoilt_model(refused: Refused, run: Path) -> None:
    model = run / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-3])
    refused("evaluate", run, said=(model, "not a readable model"))
    model.unlink()
    refused("evaluate", run, said=(run,))


def test_messages_end_where_help_begins(gnndist: Command) -> None:
    """An unknown verb or option points to the help that lists what there is."""
    code, error = gnndist("trane")
    assert code == 2
    assert re.search(r"'trane'.*--help", error)
