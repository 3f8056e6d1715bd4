"""What the exact savings do for a model on a store: each layer's choices, and what each saves.

Everything is read off recorded training steps (`probe`): with all savings as configured, with each
one off, and with none.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from rich import box
from rich.table import Table

from gnndist.inspection.operations import Depart, Gather, Product, StepTrace
from gnndist.inspection.probe import trace_step
from gnndist.inspection.sizes import Cutting, cut, step_masks
from gnndist.savings import Savings
from gnndist.store import Store
from gnndist.training.config import TrainConfig
from gnndist.units import size


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What an epoch takes, all ranks together."""

    sent: int
    """bytes"""
    dense: float
    """floating-point operations of the dense products"""
    sparse: float
    """floating-point operations along edges"""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One aggregation of a model, as it is carried out in every epoch."""

    view: int
    rows: int
    """vertices computed, over all ranks"""
    forward: tuple[int, ...]
    """numbers a message carries, exchange by exchange; none: nothing is exchanged"""
    backward: tuple[int, ...]
    cover: bool
    messages: int
    """of one exchange, over all ranks"""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A model on a store and a number of ranks."""

    ranks: int
    choices: list[Choice]
    cost: Cost
    without: dict[str, Cost]
    """with one saving off, by its name"""
    plain: Cost
    """with no saving: aggregate first, plain rows, every vertex, every epoch"""


def explain(store: Store, config: TrainConfig, ranks: int) -> Explanation:
    """Record the model's step with and without each saving and count what it costs on the store.

    Raises
    ------
    ConfigError
        for a model or an option that is not allowed, or more ranks than vertices.
    """
    names = [item.name for item in fields(Savings)]
    costs = {}
    for name in names:
        if getattr(config, name) and name != "overlap":
            costs[name] = _cost(*_recorded(store, _without(config, name), ranks))
    trace, cutting = _recorded(store, config, ranks)
    return Explanation(
        ranks=ranks,
        choices=list(_choices(trace, cutting, 4 if config.dtype == "float32" else 8)),
        cost=_cost(trace, cutting),
        without=costs,
        plain=_cost(*_recorded(store, _without(config, *names), ranks)),
    )


def _without(config: TrainConfig, *names: str) -> TrainConfig:
    return TrainConfig.from_dict(config.to_dict() | dict.fromkeys(names, False))


def _recorded(store: Store, config: TrainConfig, ranks: int) -> tuple[StepTrace, Cutting]:
    trace = trace_step(store.manifest, config)
    return trace, cut(store, ranks, trace, step_masks(store, trace))


def _cost(trace: StepTrace, cutting: Cutting) -> Cost:
    sizes = cutting.sizes
    dense = sparse = 0.0
    for op in trace.operations:
        if isinstance(op, Product) and op.rows is not None:
            dense += op.flops * float(op.rows.of(sizes).sum())
        elif isinstance(op, Gather) and op.entries is not None:
            sparse += 2.0 * op.heads * op.width * float(op.entries.of(sizes).sum())
    return Cost(sent=int(trace.bytes_sent(sizes).sum()), dense=dense, sparse=sparse)


def _choices(trace: StepTrace, cutting: Cutting, itemsize: int) -> Iterator[Choice]:
    for view in range(trace.layers):
        counts = cutting.sizes.view(view)
        sent = [op for op in trace.operations if isinstance(op, Depart) and op.view == view]
        cover = any(op.cover for op in sent)
        messages = counts.cover if cover else counts.plain
        yield Choice(
            view=view,
            rows=int(counts.rows.sum()),
            forward=tuple(op.message_bytes // itemsize for op in sent if not op.backward),
            backward=tuple(op.message_bytes // itemsize for op in sent if op.backward),
            cover=cover,
            messages=int(messages.sent.sum()),
        )


def explanation_tables(found: Explanation, vertices: int) -> tuple[Table, Table]:
    """For a terminal: a row a layer, and a row a saving."""
    layers = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="layers", title_justify="left")
    for name in ("layer", "vertices", "sent forward", "backward", "messages"):
        layers.add_column(name, justify="left" if name == "layer" else "right", no_wrap=True)
    for choice in found.choices:
        layers.add_row(
            str(choice.view + 1),
            f"{choice.rows:,} ({choice.rows / vertices:.0%})",
            _widths(choice.forward),
            _widths(choice.backward),
            f"{choice.messages:,} {'covered' if choice.cover else 'plain'}"
            if choice.forward or choice.backward
            else "–",
        )
    savings = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="an epoch", title_justify="left")
    for name in ("", "sent", "dense GFLOP", "sparse GFLOP"):
        savings.add_column(name, justify="left" if name == "" else "right", no_wrap=True)
    savings.add_row("as configured", *_figures(found.cost, None))
    for name, cost in found.without.items():
        savings.add_row(f"without {name.replace('_', '-')}", *_figures(cost, found.cost))
    savings.add_row("without any", *_figures(found.plain, found.cost))
    return layers, savings


def _widths(widths: tuple[int, ...]) -> str:
    return " + ".join(f"{width} floats" for width in widths) or "nothing"


def _figures(cost: Cost, base: Cost | None) -> Iterator[str]:
    for name in ("sent", "dense", "sparse"):
        value = getattr(cost, name)
        text = size(value) if name == "sent" else f"{value / 1e9:.3g}"
        whole = 0 if base is None else getattr(base, name)
        ratio = f"×{value / whole:.2f}" if whole > 0 else ""
        yield text if ratio in ("", "×1.00") else f"{text} {ratio}"
