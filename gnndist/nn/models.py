"""The models behind `--model`."""

import importlib
import inspect
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gnndist.errors import ConfigError
from gnndist.nn.dropout import Dropout
from gnndist.nn.gcn import GCNConv
from gnndist.rankgraph import RankGraph


class Stack(nn.Module):
    """Convolutions one after the other, ReLU and dropout between them.

    ``forward(graph, x)``: x [n_in, features] → logits [n_out, outputs]. Layer k works on
    ``graph.at(k)``, so that a view which needs only some outputs computes only what they need.
    """

    def __init__(
        self, convs: Sequence[nn.Module], *, dropout: float = 0.0, input_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.input_dropout = Dropout(input_dropout)
        self.dropout = Dropout(dropout)

    @property
    def num_layers(self) -> int:
        """Views of the graph that a forward pass uses: ``at(0)`` … ``at(num_layers − 1)``."""
        return len(self.convs)

    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        h: Tensor = self.input_dropout(graph.at(0), x)
        for layer, conv in enumerate(self.convs):
            if layer > 0:
                h = self.dropout(graph.at(layer), h.relu())
            h = conv(graph.at(layer), h)
        return h


def gcn(
    in_channels: int,
    out_channels: int,
    *,
    hidden: int = 256,
    layers: int = 2,
    dropout: float = 0.5,
    input_dropout: float = 0.0,
) -> Stack:
    """GCN (Kipf and Welling 2017)."""
    widths = [in_channels, *[hidden] * (layers - 1), out_channels]
    convs = [GCNConv(a, b) for a, b in itertools.pairwise(widths)]
    return Stack(convs, dropout=dropout, input_dropout=input_dropout)


MODELS: Mapping[str, Callable[..., nn.Module]] = {"gcn": gcn}


def build_model(
    name: str, in_channels: int, out_channels: int, options: Mapping[str, Any]
) -> nn.Module:
    """The model of that name.

    Parameters
    ----------
    name:
        a name in `MODELS`, or ``package.module:Class`` for a class (or function) that takes
        (in_channels, out_channels) and whichever of the options it names as keywords.
    options:
        option → (value, its default). A value that differs from its default must be one the
        model takes.

    Raises
    ------
    ConfigError
        for an unknown model, or an option it does not have.
    """
    make = _imported(name) if ":" in name else MODELS.get(name)
    if make is None:
        raise ConfigError(
            f"model {name!r}: allowed are {', '.join(MODELS)}, or package.module:Class"
        )
    taken = inspect.signature(make).parameters
    every = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken.values())
    given = {}
    for option, (value, default) in options.items():
        if option in taken or every:
            given[option] = value
        elif value != default:
            raise ConfigError(f"{option} = {value!r}: model {name} has no such option")
    return make(in_channels, out_channels, **given)


def _imported(name: str) -> Callable[..., nn.Module]:
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        made = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"model {name!r} does not import: {error}") from error
    if not callable(made):
        raise ConfigError(f"model {name!r}: allowed is a class or function")
    return made  # type: ignore[no-any-return]
