"""Convolutions one after the other, with what stands between them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeGuard, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from gnndist.nn.arguments import one_of
from gnndist.nn.dropout import Dropout
from gnndist.nn.gcn import GCNConv
from gnndist.nn.jumping import JumpingKnowledge, Mode
from gnndist.nn.norms import BatchNorm, LayerNorm
from gnndist.nn.sage import SAGEConv
from gnndist.rankgraph import RankGraph

Norm = Literal["none", "batch", "layer"]
Activation = Literal["relu", "elu"]
NORMS: dict[str, Callable[[int], nn.Module]] = {"batch": BatchNorm, "layer": LayerNorm}


def make_norm(kind: Norm, width: int) -> nn.Module | None:
    """The norm of that kind for [n, width], None for "none"; ValueError for another kind."""
    one_of(get_args(Norm), norm=kind)
    return NORMS[kind](width) if kind in NORMS else None


class Stack(nn.Module):
    """h ← dropout(act(norm(conv(h)) + skip(h))) for each hidden layer, then the last convolution.

    ``stack(graph, x)``: x [n_in, features] → logits [n_out, outputs]. Each convolution works on
    its own view ``graph.at(k)``, so that views which need only some outputs compute only what they
    need.

    Parameters
    ----------
    convs:
        layers called as ``conv(graph, h)``; one with an attribute `K` takes K views.
    widths:
        what each convolution takes and, last, what the last one returns: len(convs) + 1 numbers.
        Needed for norms, residual and jk.
    norm:
        none, batch (over all vertices) or layer (over each vertex's features).
    residual:
        add each hidden layer's input to what its norm gives: as it is, or through a learnt matrix
        where the widths differ (He et al. 2016).
    jk:
        how the outputs of all convolutions, then all of them hidden, are joined before a last
        linear layer (Xu et al. 2018): cat, max, lstm; none: only the last one's output counts.
    outputs:
        the width after that linear layer; needed with `jk`.
    dropout, input_dropout:
        probabilities after each hidden layer and on x.
    activation:
        relu or elu.

    Raises
    ------
    ValueError
        an argument with another value.
    """

    def __init__(
        self,
        convs: Sequence[nn.Module],
        widths: Sequence[int] | None = None,
        *,
        norm: Norm = "none",
        residual: bool = False,
        jk: Mode | Literal["none"] = "none",
        outputs: int | None = None,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        one_of(get_args(Activation), activation=activation)
        one_of(("none", *get_args(Mode)), jk=jk)
        if widths is None:
            if norm != "none" or residual or jk != "none":
                raise ValueError(f"norm {norm}, residual {residual}, jk {jk}: widths are needed")
            widths = [0] * (len(convs) + 1)
        if len(widths) != len(convs) + 1:
            raise ValueError(f"{len(widths)} widths for {len(convs)} convs: one more is needed")
        self.convs = nn.ModuleList(convs)
        self.activation = activation
        self.input_dropout = Dropout(input_dropout)
        self.dropout = Dropout(dropout)
        self.num_hidden = len(convs) if jk != "none" else len(convs) - 1
        hidden = [(widths[k], widths[k + 1]) for k in range(self.num_hidden)]
        norms = [make_norm(norm, b) for _, b in hidden]
        self.norms = nn.ModuleList(n for n in norms if n is not None)
        skips = [nn.Identity() if a == b else nn.Linear(a, b, bias=False) for a, b in hidden]
        self.skips = nn.ModuleList(skips if residual else [])
        self.jump: JumpingKnowledge | None = None
        self.lin: nn.Linear | None = None
        if jk != "none":
            if outputs is None or len(set(widths[1:])) != 1:
                raise ValueError(
                    f"jk = {jk}, widths {list(widths)}, outputs = {outputs}: it needs convolutions "
                    "that return one width, and the number of outputs"
                )
            self.jump = JumpingKnowledge(jk, widths[-1], len(convs))
            joined = widths[-1] * (len(convs) if jk == "cat" else 1)
            self.lin = nn.Linear(joined, outputs)

    @property
    def num_layers(self) -> int:
        """Views of the graph that a forward pass uses: ``at(0)`` … ``at(num_layers − 1)``."""
        return sum(views_of(conv) for conv in self.convs)

    def forward(self, graph: RankGraph, x: Tensor) -> Tensor:
        h = self.input_dropout(graph.at(0), x)
        outputs: list[Tensor] = []
        for layer, (conv, views) in enumerate(self._with_views(graph)):
            if layer == self.num_hidden:
                logits: Tensor = conv(views[0], h)
                return logits
            h = self._hidden(layer, conv, views, h)
            if self.jump is not None:
                outputs = [*(own(views, output) for output in outputs), h]
        assert self.jump is not None
        assert self.lin is not None
        joined: Tensor = self.lin(self.jump(outputs))
        return joined

    def _with_views(self, graph: RankGraph) -> Iterator[tuple[nn.Module, list[RankGraph]]]:
        first = 0
        for conv in self.convs:
            count = views_of(conv)
            yield conv, [graph.at(first + step) for step in range(count)]
            first += count

    def _hidden(self, layer: int, conv: nn.Module, views: Sequence[RankGraph], h: Tensor) -> Tensor:
        out: Tensor
        rows = views[-1].outputs
        plain = not self.norms and not self.skips
        if plain and self.activation == "relu" and adds_bias_last(conv):
            out = conv.without_bias(views[0], h, overwrite_gradient=True)
            alone = self.jump is None and isinstance(self.convs[layer + 1], GCNConv | SAGEConv)
            return self.dropout.after_relu(
                rows, out, conv.bias, in_place=True, overwrite_gradient=alone
            )
        out = conv(views[0], h)
        if self.norms:
            out = self.norms[layer](rows, out)
        if self.skips:
            out = out + self.skips[layer](own(views, h))
        if self.activation == "relu":
            return self.dropout.after_relu(rows, out)
        activated: Tensor = self.dropout(rows, F.elu(out))
        return activated


def adds_bias_last(conv: nn.Module) -> TypeGuard[GCNConv | SAGEConv]:
    """Whether a layer's bias can be added in one pass with the activation."""
    if isinstance(conv, SAGEConv):
        return not conv.normalize
    return isinstance(conv, GCNConv)


def views_of(conv: nn.Module) -> int:
    """How many views a layer takes: its K, or one."""
    steps = getattr(conv, "K", 1)
    assert isinstance(steps, int)
    return steps


def own(views: Sequence[RankGraph], h: Tensor) -> Tensor:
    """The rows of h, inputs of the first view, that are outputs of the last."""
    for view in views:
        h = view.own(h)
    return h
