"""Everything a training run depends on besides its store."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from gnndist.device_names import CHOICES
from gnndist.errors import ConfigError
from gnndist.savings import Savings
from gnndist.training.options import check, option


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The one truth for the command line, a TOML file and the Python API.

    Raises
    ------
    ConfigError
        for a value of another type or outside what its option allows.
    """

    model: str = option(
        "gcn", "gcn, sage, gin, gat, gatv2, sgc, appnp, or your own as package.module:Class"
    )
    layers: int = option(2, "number of convolutions", low=1)
    hidden: int = option(256, "width of the hidden layers", low=1)
    dropout: float = option(0.5, "dropout between layers", low=0, high=1)
    input_dropout: float = option(0.0, "dropout on the features", low=0, high=1)
    norm: str = option("none", "after hidden layers", allowed=("none", "batch", "layer"))
    residual: bool = option(False, "add each hidden layer's input to its output")
    jk: str = option(
        "none", "join all layers' outputs before a last one", allowed=("none", "cat", "max", "lstm")
    )
    heads: int = option(8, "attention heads of hidden layers (gat, gatv2)", low=1)
    output_heads: int = option(1, "attention heads of the last layer (gat, gatv2)", low=1)
    attention_dropout: float = option(0.0, "on single edges (gat, gatv2)", low=0, high=1)
    aggr: str = option("mean", "of neighbours (sage)", allowed=("mean", "max", "sum"))
    l2_normalize: bool = option(False, "hidden layers' outputs (sage)")
    train_eps: bool = option(False, "learn the vertex's own weight (gin)")
    hops: int = option(0, "propagation steps (sgc, appnp; 0: 2 for sgc, 10 for appnp)", low=0)
    teleport: float = option(0.1, "probability of returning to the start (appnp)", low=0, high=1)
    epochs: int = option(200, "synchronous passes over the whole graph", low=1, may_change=True)
    seed: int = option(0, "of the initial weights and the dropout masks", low=0, high=2**63 - 1)
    label_smoothing: float = option(0.0, "share of the target spread evenly", low=0, high=1)
    class_weights: str = option(
        "none", "of the loss: none, balanced, or a number a class, separated by commas"
    )

    optimizer: str = option("adam", "what steps", allowed=("adam", "adamw", "sgd"))
    lr: float = option(0.01, "learning rate", above=0)
    momentum: float = option(0.9, "of sgd", low=0, high=1)
    weight_decay: float = option(0.0, "L2 penalty (adamw: decoupled)", low=0)
    decay_on: str = option("all", "which layers weight decay applies to", allowed=("all", "first"))
    clip_norm: float = option(0.0, "greatest norm of the whole gradient (0: any)", low=0)

    schedule: str = option(
        "constant", "of the learning rate", allowed=("constant", "cosine", "step", "plateau")
    )
    warmup: int = option(0, "epochs in which the learning rate rises to its value", low=0)
    step_every: int = option(100, "epochs between decays (step)", low=1)
    plateau: int = option(20, "evaluations without a better figure before a decay (plateau)", low=0)
    decay: float = option(0.5, "factor of a decay (step, plateau)", above=0, high=1)
    min_lr: float = option(0.0, "where the learning rate ends (cosine, plateau)", low=0)

    eval_every: int = option(1, "epochs between evaluations", low=1)
    patience: int = option(0, "stop after so many epochs with no better validation (0: no)", low=0)

    checkpoint_every: int = option(0, "epochs between checkpoints (0: no)", low=0, may_change=True)
    checkpoint_minutes: float = option(
        10.0, "minutes between checkpoints (0: no)", low=0, may_change=True
    )
    keep_checkpoints: int = option(2, "how many of them stay", low=1, may_change=True)

    dtype: str = option("float32", "type of features and weights", allowed=("float32", "float64"))
    device: str = option("auto", "where to compute", allowed=CHOICES, may_change=True)
    threads: int = option(
        0, "threads a rank (0: the cores shared out)", low=0, high=1024, may_change=True
    )
    timeout: float = option(
        600.0,
        "seconds that ranks wait for one another (0: for ever); short epochs make it less",
        low=0,
        may_change=True,
    )

    linear_first: bool = option(
        True, "aggregate at the narrower of a layer's two widths", may_change=True
    )
    propagate_once: bool = option(
        True, "aggregate the features once, where no dropout changes them", may_change=True
    )
    cover: bool = option(
        True, "send sums formed at the sender where that takes fewer messages", may_change=True
    )
    active_sets: bool = option(
        True, "compute each layer only where the loss needs it", may_change=True
    )
    overlap: bool = option(True, "exchange beside the local work", may_change=True)

    profile: bool = option(False, "where epochs' time goes, and a trace a rank", may_change=True)
    tensorboard: bool = option(False, "write the figures for TensorBoard too", may_change=True)

    def __post_init__(self) -> None:
        check(self)

    @property
    def savings(self) -> Savings:
        """Which exact savings are on."""
        return Savings(**{item.name: getattr(self, item.name) for item in fields(Savings)})

    def shared(self) -> dict[str, Any]:
        """The options that must be equal on every rank of a job."""
        own = ("device", "threads", "timeout")
        return {name: value for name, value in asdict(self).items() if name not in own}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainConfig":
        """The config with these fields; the others have their defaults."""
        known = {item.name for item in fields(cls)}
        for name in values:
            if name not in known:
                allowed = ", ".join(sorted(known))
                raise ConfigError(f"unknown option {name!r}: allowed are {allowed}")
        return cls(**values)
