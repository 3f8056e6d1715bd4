"""A training that is interrupted and continued is the training that was not.

On the same number of ranks bit for bit, on another to rounding: losses, weights, optimiser, best
epoch. Ranks are threads here, and once processes over gloo.
"""

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import awkward
from processes import run_ranks
from threads import run_threads

from gnndist import GnndistError, TrainConfig, job
from gnndist.comm import Comm
from gnndist.store import Store, write_store
from gnndist.training import loop
from gnndist.training.checkpoint import STATE, TENSORS, Checkpoints
from gnndist.training.loop import Stopped, Trainer
from gnndist.training.run import train_rank
from gnndist.training.rundir import RunDir
from gnndist.training.state import restore

EPOCHS, INTERRUPTED_AT = 12, 5
BASE = TrainConfig(
    hidden=6, dtype="float64", epochs=EPOCHS, seed=3, eval_every=2, threads=1, keep_checkpoints=3
)
CONFIGS = {
    "adam, cosine, warm-up, clipping": replace(
        BASE, input_dropout=0.3, schedule="cosine", warmup=3, clip_norm=0.1, weight_decay=1e-3
    ),
    "sgd, plateau, batch norm": replace(
        BASE, optimizer="sgd", schedule="plateau", plateau=0, norm="batch", label_smoothing=0.1
    ),
    "adamw, steps, sage": replace(
        BASE, model="sage", optimizer="adamw", schedule="step", step_every=4, decay_on="first"
    ),
}
Runner = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_store(awkward(), tmp_path_factory.mktemp("resume") / "store", cells=8)


@pytest.fixture(autouse=True)
def one_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that are threads share torch's generator: let them make their models one by one."""
    lock, make = threading.Lock(), loop.make_model

    def make_model(store: Store, config: TrainConfig) -> torch.nn.Module:
        with lock:
            return make(store, config)

    monkeypatch.setattr(loop, "make_model", make_model)


def train(
    comm: Comm, store: Path, config: TrainConfig, run: Path, resume: bool, until: int | None
) -> None:
    """Train as one rank, from the last checkpoint if there is one; asked to stop in an epoch."""
    epoch = 0

    def note(line: dict[str, Any]) -> None:
        nonlocal epoch
        epoch = line["epoch"]

    def stop() -> bool:
        # One rank's word is enough, and it is the last one's.
        return comm.rank == comm.world - 1 and until is not None and epoch + 1 >= until

    try:
        train_rank(
            Store.open(store),
            config,
            RunDir(path=run),
            comm,
            torch.device("cpu"),
            note,
            resume=resume,
            warn=pytest.fail,
            stop=stop,
        )
    except Stopped:
        assert until is not None


def new_run(path: Path, store: Store, config: TrainConfig) -> RunDir:
    run = RunDir.create(path)
    run.write_config(config, store, 1)
    return run


def whole(path: Path, store: Store, config: TrainConfig, ranks: int, runner: Runner) -> RunDir:
    """A training that nothing interrupts."""
    run = new_run(path, store, config)
    runner(train, ranks, store.path, config, run.path, False, None)
    return run


def interrupted(
    path: Path, store: Store, config: TrainConfig, first: int, then: int, runner: Runner
) -> RunDir:
    """A training that stops and goes on with another number of ranks."""
    run = new_run(path, store, config)
    runner(train, first, store.path, config, run.path, False, INTERRUPTED_AT)
    assert Checkpoints(run.checkpoints).epochs() == [INTERRUPTED_AT]
    assert not run.has_result
    runner(train, then, store.path, config, run.path, True, None)
    return run


def lines(run: RunDir) -> list[dict[str, Any]]:
    """Everything an epoch's line says but its costs."""
    costs = ("epoch_s", "compute_s", "wait_s", "bytes_sent")
    return [{k: v for k, v in line.items() if k not in costs} for line in run.metrics()]


def tensors(run: RunDir) -> dict[str, torch.Tensor]:
    """Weights, optimiser and best weights at the end."""
    newest = Checkpoints(run.checkpoints).newest(pytest.fail)
    assert newest is not None
    assert newest.epoch == EPOCHS
    return newest.tensors | {f"saved.{k}": v for k, v in run.model().items()}


def assert_equal(one: RunDir, other: RunDir) -> None:
    """Bit for bit."""
    assert lines(one) == lines(other)
    a, b = tensors(one), tensors(other)
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def assert_close(one: RunDir, other: RunDir) -> None:
    """To float64's rounding."""
    assert [line["epoch"] for line in lines(one)] == [line["epoch"] for line in lines(other)]
    for a, b in zip(lines(one), lines(other), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-9)
        assert a["lr"] == b["lr"]
    for name, tensor in tensors(one).items():
        torch.testing.assert_close(tensor, tensors(other)[name], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_bit_for_bit_on_as_many_ranks_and_to_rounding_on_others(
    tmp_path: Path, store: Store, config: TrainConfig
) -> None:
    one = whole(tmp_path / "whole", store, config, 2, run_threads)
    assert_equal(one, interrupted(tmp_path / "2-2", store, config, 2, 2, run_threads))
    for first, then in ((2, 1), (2, 4), (4, 3)):
        path = tmp_path / f"{first}-{then}"
        assert_close(one, interrupted(path, store, config, first, then, run_threads))


def test_bit_for_bit_over_gloo_in_float32(tmp_path: Path, store: Store) -> None:
    config = replace(CONFIGS["sgd, plateau, batch norm"], dtype="float32")
    one = whole(tmp_path / "whole", store, config, 2, run_ranks)
    other = interrupted(tmp_path / "parts", store, config, 2, 2, run_ranks)
    assert_equal(one, other)


def test_a_finished_training_takes_more_epochs(tmp_path: Path, store: Store) -> None:
    config = CONFIGS["adamw, steps, sage"]
    short = replace(config, epochs=INTERRUPTED_AT + 1)  # an epoch that evaluates
    run = whole(tmp_path / "short", store, short, 1, run_threads)
    run_threads(train, 1, store.path, config, run.path, True, None)
    assert_equal(run, whole(tmp_path / "long", store, config, 1, run_threads))


# --- damage -------------------------------------------------------------------------------------


def cut_short(checkpoint: Path) -> None:
    content = (checkpoint / TENSORS).read_bytes()
    (checkpoint / TENSORS).write_bytes(content[:-5])


def flip_a_bit(checkpoint: Path) -> None:
    content = bytearray((checkpoint / TENSORS).read_bytes())
    content[-3] ^= 4
    (checkpoint / TENSORS).write_bytes(content)


def change_a_value(checkpoint: Path) -> None:
    state = json.loads((checkpoint / STATE).read_text())
    state["values"]["schedule"]["lr"] = 1.0
    (checkpoint / STATE).write_text(json.dumps(state))


def lose_a_file(checkpoint: Path) -> None:
    (checkpoint / STATE).unlink()


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, change_a_value, lose_a_file])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    tmp_path: Path, store: Store, damage: Callable[[Path], None]
) -> None:
    config = replace(BASE, checkpoint_every=2)
    run = whole(tmp_path / "run", store, config, 1, run_threads)
    checkpoints = Checkpoints(run.checkpoints)
    assert checkpoints.epochs() == [8, 10, 12]
    damage(run.checkpoints / "epoch-000012")
    warnings: list[str] = []
    newest = checkpoints.newest(warnings.append)
    assert newest is not None
    assert newest.epoch == 10
    (warning,) = warnings
    assert "epoch-000012 is damaged" in warning


def test_what_a_killed_process_left_is_cleared(tmp_path: Path, store: Store) -> None:
    config = replace(BASE, checkpoint_every=2)
    run = whole(tmp_path / "run", store, config, 1, run_threads)
    before = lines(run)
    shutil.copytree(run.checkpoints / "epoch-000012", run.checkpoints / ".epoch-000011.partial")
    shutil.rmtree(run.checkpoints / "epoch-000012")
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 13, "lo')
    run_threads(train, 1, store.path, config, run.path, True, None)
    assert lines(run) == before
    assert not list(run.path.rglob("*.partial"))


# --- refusals -----------------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path: Path, store: Store) -> RunDir:
    """A run with a checkpoint, not finished."""
    run = new_run(tmp_path / "run", store, BASE)
    run_threads(train, 1, store.path, BASE, run.path, False, INTERRUPTED_AT)
    return run


def test_another_config_is_refused(stopped: RunDir) -> None:
    with pytest.raises(GnndistError, match=r"lr = 0.5, but .* has lr = 0.01"):
        job.resume(stopped, lr=0.5)
    with pytest.raises(GnndistError, match=r"model = 'sage', but .* has model = 'gcn'"):
        job.resume(stopped, model="sage")
    with pytest.raises(GnndistError, match="hiden"):
        job.resume(stopped, hiden=3)


def test_a_config_changed_behind_our_back_is_refused(stopped: RunDir) -> None:
    file = stopped.path / "config.json"
    content = json.loads(file.read_text())
    content["config"]["hidden"] = 16
    file.write_text(json.dumps(content))
    with pytest.raises(GnndistError, match=r"hidden = 16, but epoch 5's checkpoint has hidden = 6"):
        job.resume(stopped)


def test_a_cosine_keeps_its_epochs(tmp_path: Path, store: Store) -> None:
    run = new_run(tmp_path / "run", store, CONFIGS["adam, cosine, warm-up, clipping"])
    with pytest.raises(GnndistError, match=r"epochs = 40, but .* has epochs = 12"):
        job.resume(run, epochs=40)


def test_another_graph_is_refused(tmp_path: Path, store: Store, stopped: RunDir) -> None:
    other = write_store(awkward(seed=1), tmp_path / "other", cells=8)
    with pytest.raises(GnndistError, match="has changed since") as refused:
        job.resume(stopped, store=other.path)
    assert other.fingerprint in str(refused.value)
    assert store.fingerprint in str(refused.value)
    # Likewise if the run's own note of it is changed.
    stopped.write_config(BASE, other, 1)
    with pytest.raises(GnndistError, match="fingerprint") as refused:
        job.resume(stopped)
    assert other.fingerprint in str(refused.value)
    assert store.fingerprint in str(refused.value)


def test_another_model_is_refused(store: Store, stopped: RunDir) -> None:
    newest = Checkpoints(stopped.checkpoints).newest(pytest.fail)
    assert newest is not None

    def load(comm: Comm) -> None:
        config = replace(BASE, hidden=7)
        restore(Trainer.create(store, config, comm, torch.device("cpu")), newest)

    with pytest.raises(GnndistError, match=r"convs.0.bias .*\(7,\).*convs.0.bias .*\(6,\)"):
        run_threads(load, 1)


def test_a_run_in_use_is_left_alone(stopped: RunDir) -> None:
    with stopped.locked(), pytest.raises(GnndistError, match="trained by another process"):
        job.resume(stopped)
