"""Configs in TOML files: recipes, and the ones people write."""

import tomllib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from gnndist.errors import ConfigError
from gnndist.training.config import TrainConfig

TABLES = ("train", "published")
"""options; and, in a recipe, the published result it repeats (for people: nothing reads it)"""


def read_options(path: Path) -> dict[str, Any]:
    """The options that a file's [train] table sets.

    Raises
    ------
    ConfigError
        if there is no such file, it is not TOML, or it names an option that does not exist or a
        value that is not allowed.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for name, value in content.items():
        if name not in TABLES or not isinstance(value, dict):
            raise ConfigError(
                f"{path}: {name!r} is not allowed at the top: allowed are the tables "
                f"{', '.join(f'[{table}]' for table in TABLES)}"
            )
    options: dict[str, Any] = content.get("train", {})
    known = sorted(item.name for item in fields(TrainConfig))
    for name in options:
        if name not in known:
            raise ConfigError(f"{path}: unknown option {name!r}: allowed are {', '.join(known)}")
    try:
        TrainConfig(**options)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return options


def read_all(files: Iterable[Path]) -> dict[str, Any]:
    """The options of several files, later ones over earlier ones."""
    values: dict[str, Any] = {}
    for path in files:
        values |= read_options(path)
    return values


def combined(files: Iterable[Path], options: dict[str, Any]) -> TrainConfig:
    """The config of `options` over the last file over the one before it … over the defaults."""
    return TrainConfig(**(read_all(files) | options))
