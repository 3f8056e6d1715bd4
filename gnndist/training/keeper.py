"""Keeps a run's training state on disk: when it is due, and where the disk lets us."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gnndist.errors import RunError
from gnndist.training.checkpoint import Checkpoints
from gnndist.training.disk import plain
from gnndist.training.rundir import CHECKPOINTS, CONFIG, RunDir
from gnndist.training.state import capture

if TYPE_CHECKING:
    from gnndist.training.loop import Trainer


class Keeper:
    """Saves checkpoints of a run. Only rank 0 has one: the state is the same on every rank."""

    def __init__(self, run: RunDir, fingerprint: str) -> None:
        self._run = run
        self._fingerprint = fingerprint
        self._config_file = (run.path / CONFIG).read_bytes()
        self._saved_at = time.monotonic()
        self._saved_epoch = 0

    def due(self, trainer: "Trainer") -> bool:
        """Whether a checkpoint is due after the epoch that has just ended."""
        config = trainer.config
        if config.checkpoint_every and trainer.epoch % config.checkpoint_every == 0:
            return True
        minutes = (time.monotonic() - self._saved_at) / 60
        return bool(config.checkpoint_minutes) and minutes >= config.checkpoint_minutes

    def save(self, trainer: "Trainer") -> None:
        """Write a checkpoint of the epoch that has just ended.

        Raises
        ------
        RunError
            the run directory takes no more; the message says where the state is instead.
        """
        if trainer.epoch == self._saved_epoch:
            return
        keep = trainer.config.keep_checkpoints
        with self.guarding(trainer, "a checkpoint"):
            Checkpoints(self._run.checkpoints, keep=keep).save(capture(trainer, self._fingerprint))
        self._saved_epoch, self._saved_at = trainer.epoch, time.monotonic()

    @contextmanager
    def guarding(self, trainer: "Trainer", what: str) -> Iterator[None]:
        """Keep the state elsewhere if the run directory does not take `what`."""
        try:
            yield
        except OSError as error:
            raise self._rescued(trainer, what, error) from error

    def _rescued(self, trainer: "Trainer", what: str, error: OSError) -> RunError:
        """Keep the state outside the run directory, which does not take `what`; the error to raise.

        What is kept there is a run of its own that can be resumed.
        """
        said = f"cannot write {what} of epoch {trainer.epoch} to {self._run.path}: {plain(error)}"
        rescue = Path(tempfile.gettempdir()) / f"gnndist-{self._run.path.name}-{os.getpid()}"
        try:
            rescue.mkdir()
            (rescue / CONFIG).write_bytes(self._config_file)
            Checkpoints(rescue / CHECKPOINTS).save(capture(trainer, self._fingerprint))
        except OSError as second:
            said += f"; nor to {rescue}: {plain(second)}"
            older = Checkpoints(self._run.checkpoints).epochs()
            return RunError(said + (f"; epoch {older[-1]} is kept in it" if older else ""))
        return RunError(
            f"{said}; the state is kept in {rescue}: continue with "
            f"`gnndist train --resume {rescue}`"
        )
