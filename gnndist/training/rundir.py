"""A run directory: what a run was told, what it measured, what it learnt.

config.json          everything needed to repeat it
config.toml          the options in effect, as --config takes them
metrics.jsonl        a line an epoch
model.safetensors    the weights of the best epoch
result.json          the figures
ranks.json           by rank: its vertices, edges and halo; seconds an epoch by phase; bytes an
                     epoch to each rank (`bytes_to`); peak memory; machine (`tally.rank_figures`)
profile.json         with --profile: by rank, the parts of each profiled epoch in seconds
                     (`breakdown.EpochParts`)
trace/rank-N.json    with --profile: what rank N did in those epochs, as a Chrome trace
checkpoints/         training's state (`checkpoint.Checkpoints`)
tensorboard/         with --tensorboard: the figures as TensorBoard reads them
ended.json           why the last job on it ended before it was finished: failed or stopped, the
                     message, when
logs/rank-N.log      what rank N wrote to standard error, its traceback if it failed

A run of several seeds holds config.json, result.json (mean and standard deviation) and a run
directory a seed, seed-N.
"""

import fcntl
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import safetensors.torch
import tomli_w
import torch
from torch import Tensor

import gnndist
from gnndist.errors import RunError
from gnndist.store import Store
from gnndist.training.breakdown import EpochParts
from gnndist.training.checkpoint import pack
from gnndist.training.config import TrainConfig
from gnndist.training.disk import plain, write_file

CONFIG, METRICS, MODEL, RESULT = "config.json", "metrics.jsonl", "model.safetensors", "result.json"
RANKS, PROFILE, TRACE = "ranks.json", "profile.json", "trace"
TOML, CHECKPOINTS, LOGS = "config.toml", "checkpoints", "logs"
TENSORBOARD, ENDED = "tensorboard", "ended.json"


@dataclass(frozen=True, kw_only=True)
class RunDir:
    """The directory of one run."""

    path: Path

    @classmethod
    def create(cls, path: Path | str, *, overwrite: bool = False) -> "RunDir":
        """A new, empty run directory.

        Raises
        ------
        RunError
            if it holds something already (with `overwrite`: something that is not a run).
        """
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise RunError(f"{path} is a file: allowed is a new or empty directory")
        if path.is_dir() and any(path.iterdir()):
            if not overwrite:
                raise RunError(f"{path} is not empty: choose another --out, or add --overwrite")
            if not (path / CONFIG).is_file():
                raise RunError(f"{path} is not a run: --overwrite replaces runs only")
            shutil.rmtree(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot create {path}: {plain(error)}") from error
        return cls(path=path)

    @classmethod
    def open(cls, path: Path | str) -> "RunDir":
        """An existing run."""
        run = cls(path=Path(path))
        if not (run.path / CONFIG).is_file():
            raise RunError(f"{path} is not a run: it has no {CONFIG}")
        return run

    @property
    def trace(self) -> Path:
        """The folder of the ranks' traces."""
        return self.path / TRACE

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard's event files."""
        return self.path / TENSORBOARD

    @property
    def checkpoints(self) -> Path:
        """The folder of training's states."""
        return self.path / CHECKPOINTS

    @property
    def logs(self) -> Path:
        """The folder of the ranks' logs."""
        return self.path / LOGS

    def of_seed(self, seed: int) -> "RunDir":
        """The run of one seed of several."""
        return RunDir(path=self.path / f"seed-{seed}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training into this directory meanwhile.

        Raises
        ------
        RunError
            if one does already.
        """
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            raise RunError(f"{self.path} is being trained by another process") from None
        except OSError:
            pass  # a file system without locks
        try:
            yield
        finally:
            os.close(folder)

    # --- written --------------------------------------------------------------------------------

    def write_config(
        self, config: TrainConfig, store: Store, ranks: int, seeds: Sequence[int] = ()
    ) -> None:
        """What is needed to repeat the run; `seeds` where it is several."""
        content = {
            "config": config.to_dict(),
            "store": str(store.path.resolve()),
            "fingerprint": store.fingerprint,
            "ranks": ranks,
            "versions": {
                "gnndist": gnndist.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
            "host": platform.node(),
            "command": sys.argv,
        }
        self._write_json(CONFIG, content | ({"seeds": list(seeds)} if seeds else {}))
        write_file(self.path / TOML, tomli_w.dumps({"train": config.to_dict()}).encode())

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        with (self.path / METRICS).open("a") as file:
            file.write(json.dumps(line) + "\n")

    def trim_metrics(self, epoch: int) -> None:
        """Forget the lines of epochs after `epoch`, and one cut short."""
        lines = [line for line in self.metrics() if line["epoch"] <= epoch]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        write_file(self.path / METRICS, text.encode())

    def write_model(self, state: Mapping[str, Tensor]) -> None:
        write_file(self.path / MODEL, pack(dict(state)))

    def write_result(self, result: Mapping[str, Any]) -> None:
        self._write_json(RESULT, result)

    def write_ranks(self, ranks: Sequence[Mapping[str, Any]]) -> None:
        self._write_json(RANKS, {"ranks": ranks})

    def write_profile(self, ranks: Sequence[Sequence[EpochParts]]) -> None:
        """The profiled epochs of every rank, by rank."""
        self._write_json(PROFILE, {"ranks": [[e.to_dict() for e in epochs] for epochs in ranks]})

    def note_end(self, state: str, message: str) -> None:
        """Keep why a job ended early, if the disk can still take it."""
        with suppress(OSError, RunError):
            at = datetime.now().isoformat(timespec="seconds")
            self._write_json(ENDED, {"state": state, "message": message, "at": at})

    def forget_end(self) -> None:
        """A job goes on where one ended early."""
        with suppress(OSError):
            (self.path / ENDED).unlink(missing_ok=True)

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        write_file(self.path / name, (json.dumps(content, indent=2) + "\n").encode())

    # --- read -----------------------------------------------------------------------------------

    def config(self) -> TrainConfig:
        return TrainConfig.from_dict(self._read_json(CONFIG)["config"])

    def ranks(self) -> int:
        return int(self._read_json(CONFIG)["ranks"])

    def seeds(self) -> list[int]:
        """The seeds of a run of several; none where it is a single one."""
        return list(self._read_json(CONFIG).get("seeds", ()))

    def check_single(self) -> None:
        """Refuse a run of several seeds where one is meant."""
        if seeds := self.seeds():
            raise RunError(
                f"{self.path} holds the runs of {len(seeds)} seeds: name one, such as "
                f"{self.of_seed(seeds[0]).path}"
            )

    def store(self, path: Path | str | None = None, *, partial: bool = False) -> Store:
        """The store the run was trained from (or a copy of it at `path`, or part of one).

        Raises
        ------
        RunError
            if its content is not what it was then.
        """
        written = self._read_json(CONFIG)
        store = Store.open(Path(path or written["store"]), partial=partial)
        if store.fingerprint != written["fingerprint"]:
            raise RunError(
                f"{store.path} has changed since the run {self.path}: fingerprint "
                f"{store.fingerprint}, then {written['fingerprint']}"
            )
        return store

    def result(self) -> dict[str, Any]:
        return self._read_json(RESULT)

    def profile(self) -> list[list[EpochParts]]:
        """By rank, the parts of each profiled epoch."""
        ranks = self._read_json(PROFILE)["ranks"]
        return [[EpochParts(**epoch) for epoch in epochs] for epochs in ranks]

    @property
    def has_result(self) -> bool:
        return (self.path / RESULT).is_file()

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of all epochs; one that a killed process cut short is left out."""
        path = self.path / METRICS
        for line in path.read_text().splitlines() if path.is_file() else ():
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def model(self) -> dict[str, Tensor]:
        path = self.path / MODEL
        if not path.is_file():
            raise RunError(f"{self.path} has no {MODEL}: the run has not finished its first epoch")
        try:
            return safetensors.torch.load_file(path)
        except Exception as error:
            raise RunError(f"{path} is not a readable model: {error}") from error

    def _read_json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            content: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            raise RunError(f"{self.path} has no {name}: the run has not finished") from None
        except ValueError as error:
            raise RunError(f"{path} is not valid JSON: {error}") from error
        return content
