"""Checkpoints: a directory each, whole or not there, checked when read. No pickles.

RUN/checkpoints/epoch-000120/
    tensors.safetensors   model.*, optimizer.*, best.*
    state.json            epoch, config, fingerprint, best so far, schedule; checksums of both
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import xxhash
from torch import Tensor

from gnndist.training.disk import sync_folder

TENSORS, STATE = "tensors.safetensors", "state.json"
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Training as it stood after an epoch."""

    epoch: int
    values: dict[str, Any]
    """everything but tensors, as JSON takes it"""
    tensors: dict[str, Tensor]


class Damaged(Exception):
    """A checkpoint that is cut short or altered."""


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, *, keep: int = 2) -> None:
        self.folder = folder
        self._keep = keep

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint and let go of all but the newest.

        Raises
        ------
        OSError
            it could not be written; the older ones are all still there.
        """
        self.folder.mkdir(exist_ok=True)
        final = self.folder / _name(checkpoint.epoch)
        partial = self.folder / f".{final.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            tensors = pack(checkpoint.tensors)
            _write(partial / TENSORS, tensors)
            _write(partial / STATE, _state(checkpoint, tensors))
            sync_folder(partial)
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        sync_folder(self.folder)
        for old in self.epochs()[: -self._keep]:
            shutil.rmtree(self.folder / _name(old), ignore_errors=True)

    def epochs(self) -> list[int]:
        """Epochs that have a checkpoint, ascending."""
        names = [path.name for path in self.folder.glob("epoch-*")]
        return sorted(int(name.removeprefix("epoch-")) for name in names if name[6:].isdigit())

    def newest(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest that is whole; `warn` is told of those that are not. None: there is none."""
        for epoch in reversed(self.epochs()):
            path = self.folder / _name(epoch)
            try:
                return _read(path, epoch)
            except Damaged as error:
                warn(f"warning: {path} is damaged ({error}); trying the checkpoint before it")
        return None

    def go_on_from(self, epoch: int) -> None:
        """Remove checkpoints newer than an epoch, and what a killed process left half-written."""
        for path in self.folder.glob(".epoch-*.partial"):
            shutil.rmtree(path, ignore_errors=True)
        for newer in self.epochs():
            if newer > epoch:
                shutil.rmtree(self.folder / _name(newer), ignore_errors=True)


def pack(tensors: dict[str, Tensor]) -> bytes:
    """Tensors as safetensors bytes."""
    copies = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}
    return safetensors.torch.save(copies)


def unpack(content: bytes) -> dict[str, Tensor]:
    return safetensors.torch.load(content)


def _name(epoch: int) -> str:
    return f"epoch-{epoch:06d}"


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _state(checkpoint: Checkpoint, tensors: bytes) -> bytes:
    state = {
        "format_version": FORMAT_VERSION,
        "epoch": checkpoint.epoch,
        "values": checkpoint.values,
        "tensors": {"size": len(tensors), "xxh3_128": xxhash.xxh3_128_hexdigest(tensors)},
    }
    return (json.dumps(state | {"checksum": _checksum(state)}, indent=1) + "\n").encode()


def _checksum(state: dict[str, Any]) -> str:
    rest = {key: value for key, value in state.items() if key != "checksum"}
    return xxhash.xxh3_128_hexdigest(json.dumps(rest, sort_keys=True).encode())


def _read(path: Path, epoch: int) -> Checkpoint:
    try:
        state = json.loads((path / STATE).read_bytes())
        tensors = (path / TENSORS).read_bytes()
    except (OSError, ValueError) as error:
        raise Damaged(str(error)) from error
    if not isinstance(state, dict) or state.get("checksum") != _checksum(state):
        raise Damaged(f"{STATE} was altered")
    if state["format_version"] != FORMAT_VERSION:
        raise Damaged(f"format version {state['format_version']}, this is {FORMAT_VERSION}")
    if len(tensors) != state["tensors"]["size"]:
        raise Damaged(f"{TENSORS} has {len(tensors)} bytes of {state['tensors']['size']}")
    if xxhash.xxh3_128_hexdigest(tensors) != state["tensors"]["xxh3_128"]:
        raise Damaged(f"{TENSORS} was altered: its checksum is not the one in {STATE}")
    if state["epoch"] != epoch:
        raise Damaged(f"it holds epoch {state['epoch']}")
    return Checkpoint(epoch=epoch, values=state["values"], tensors=unpack(tensors))
