"""What training shows as it goes: a panel on a terminal, a few lines elsewhere."""

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from gnndist.cli import console as console_module
from gnndist.cli import live
from gnndist.cli.live import LINES, EpochView


def line(epoch: int, **more: float) -> dict[str, Any]:
    costs = {"epoch_s": 0.2, "compute_s": 0.15, "wait_s": 0.05, "bytes_sent": 2_500_000}
    return {"epoch": epoch, "loss": 1 / epoch, "lr": 0.01, **costs, **more}


def shown(monkeypatch: pytest.MonkeyPatch, lines: list[dict[str, Any]], *, terminal: bool) -> str:
    """Everything that is written while those epochs go by."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, highlight=False)
    for module in (live, console_module):
        monkeypatch.setattr(module, "console", console)
    monkeypatch.setattr(live, "REDRAW_S", 0.0)
    view = EpochView("gcn on digits, 2 ranks", lines[-1]["epoch"], "single-label")
    with view.shown():
        for epoch in lines:
            view(epoch)
    return out.getvalue()


def test_a_terminal_sees_loss_metrics_time_exchange_share_and_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figures = {"train_accuracy": 0.9, "valid_accuracy": 0.7, "test_accuracy": 0.6}
    better = {"train_accuracy": 0.91, "valid_accuracy": 0.75, "test_accuracy": 0.61}
    text = shown(monkeypatch, [line(1, **figures), line(2, **better), line(3)], terminal=True)
    for part in (
        "gcn on digits, 2 ranks",
        "epoch 3/3",
        "0.3333",
        "learning rate 0.01",
        "train 0.9100  valid 0.7500  test 0.6100",
        "valid 0.7500 at epoch 2",
        "200 ms, 25% of it waiting for the exchange, 2.5 MB sent",
        "left",
    ):
        assert part in text
    assert "\x1b[?25l" in text  # the cursor is hidden meanwhile
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_elsewhere_there_are_some_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = 1000
    lines = [line(epoch, valid_accuracy=0.5) for epoch in range(1, epochs + 1)]
    text = shown(monkeypatch, lines, terminal=False)
    assert "\x1b" not in text
    assert LINES <= len(text.splitlines()) <= LINES + 2
    assert text.splitlines()[0].startswith("epoch    1/1000  loss 1.0000  valid 0.5000")
    assert "25% waiting" in text
    assert text.splitlines()[-1].startswith("epoch 1000/1000")


def test_a_resumed_training_tells_the_time_from_where_it_went_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = iter([100.0, 110.0, 120.0])
    monkeypatch.setattr(live, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    text = shown(monkeypatch, [line(99), line(100)], terminal=False)
    assert "10 s left" in text.splitlines()[0]
