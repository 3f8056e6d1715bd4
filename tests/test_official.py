"""OGB's evaluator says of P ranks what it says of one, and what gnndist's own metrics say."""

from pathlib import Path

import pytest
import torch
from ogb_layout import go_offline, write_ogb
from threads import run_threads

from gnndist.comm import Comm
from gnndist.data import load
from gnndist.official import official_figures
from gnndist.store import Store, write_store
from gnndist.tasks import task
from gnndist.training.shard import load_shard

pytest.importorskip("ogb", reason="the package ogb is an extra")


def figures(comm: Comm, path: Path) -> tuple[dict[str, float], dict[str, float]]:
    store = Store.open(path)
    shard = load_shard(store, comm)
    # Any function of the vertex gives predictions that do not depend on the ranks.
    columns = torch.arange(1, store.manifest.num_classes + 1)
    ids = torch.from_numpy(shard.original_ids)
    logits = torch.sin(ids[:, None] * columns[None].double())
    known = (logits, shard.labels, shard.split, comm)
    own = task(store.manifest.task).metrics(*known)
    assert store.manifest.evaluator is not None
    return official_figures(store.manifest.evaluator, *known), own


@pytest.mark.parametrize(
    ("name", "metric", "own_metric"),
    [("ogbn-arxiv", "acc", "accuracy"), ("ogbn-proteins", "rocauc", "rocauc")],
)
def test_the_official_figures_are_ours(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    metric: str,
    own_metric: str,
) -> None:
    go_offline(monkeypatch)
    write_ogb(name, tmp_path)
    write_store(load(name, root=tmp_path), tmp_path / "store")
    (one, own), *_ = run_threads(figures, 1, tmp_path / "store")
    assert set(one) == {f"{split}_ogb_{metric}" for split in ("train", "valid", "test")}
    for split in ("train", "valid", "test"):
        assert one[f"{split}_ogb_{metric}"] == pytest.approx(own[f"{split}_{own_metric}"])
    for several, _ in run_threads(figures, 3, tmp_path / "store"):
        assert several == pytest.approx(one)
