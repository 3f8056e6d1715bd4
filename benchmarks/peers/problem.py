"""What all contenders solve: one graph, one model with given first weights, one loss.

The parent writes it to a folder; every contender reads it from there and nothing else.
"""

import json
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from gnndist.graph import Graph

Model = Literal["gcn", "sage", "gat"]
Array = NDArray[Any]
ARRAYS = ("indptr", "indices", "features", "labels", "train")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A model to train on a graph; a folder of ``.npy`` files, weights and a JSON file.

    gcn: H ← Â H W + b with Â = D^-½ (A + I) D^-½. sage: H ← mean_N(H) W₁ + H W₂ + b.
    gat: softmax over N ∪ {self} of LeakyReLU(a·W h_j + b·W h_i), heads side by side, one in the
    last layer. ReLU (gat: ELU) and dropout between layers. The loss is the mean cross entropy
    over training vertices; Adam steps.
    """

    folder: str
    model: Model
    dropout: float
    hidden: int
    """width of a hidden layer (gat: of its heads together)"""
    layers: int
    heads: int
    """of hidden layers; 1 but for gat"""
    classes: int
    lr: float
    dtype: Literal["float32", "float64"]
    seed: int
    store: str
    """the same graph as a gnndist store"""

    def write(self, graph: Graph) -> None:
        """Write the graph and the first weights to the folder."""
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        assert graph.features is not None
        assert graph.labels is not None
        arrays = {
            "indptr": graph.indptr,
            "indices": graph.indices,
            "features": np.asarray(graph.features, self.dtype),
            "labels": graph.labels,
            "train": graph.splits["train"],
        }
        for name in ARRAYS:
            np.save(folder / f"{name}.npy", arrays[name])
        save_file(self.first_weights(graph.num_features), folder / "weights.safetensors")
        (folder / "problem.json").write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: str) -> "Problem":
        return cls(**json.loads((Path(folder) / "problem.json").read_text()))

    def array(self, name: str) -> Array:
        """One of `ARRAYS`: CSR by destination, features [N, F], labels [N], training ids."""
        loaded: Array = np.load(Path(self.folder) / f"{name}.npy")
        return loaded

    def weights(self) -> dict[str, Array]:
        """The first weights by name: see `first_weights`."""
        loaded: dict[str, Array] = load_file(Path(self.folder) / "weights.safetensors")
        return loaded

    def shapes(self, features: int) -> list[tuple[int, int, int]]:
        """(inputs, outputs of a head, heads) of every layer."""
        widths = [features, *[self.hidden] * (self.layers - 1)]
        inner = [(a, b // self.heads, self.heads) for a, b in pairwise(widths)]
        return [*inner, (widths[-1], self.classes, 1)]

    def first_weights(self, features: int) -> dict[str, Array]:
        """Glorot-uniform weights ``K.weight`` [out, in], zero biases ``K.bias`` of layer K.

        sage has ``K.self`` [out, in] besides; gat ``K.source`` and ``K.target`` [heads, out].
        """
        rng = np.random.default_rng(self.seed)

        def glorot(*shape: int) -> Array:
            bound = np.sqrt(6 / sum(shape[-2:]))
            return rng.uniform(-bound, bound, shape).astype(self.dtype)

        weights: dict[str, Array] = {}
        for layer, (inputs, outputs, heads) in enumerate(self.shapes(features)):
            weights[f"{layer}.weight"] = glorot(outputs * heads, inputs)
            weights[f"{layer}.bias"] = np.zeros(outputs * heads, self.dtype)
            if self.model == "sage":
                weights[f"{layer}.self"] = glorot(outputs, inputs)
            if self.model == "gat":
                weights[f"{layer}.source"] = glorot(heads, outputs)
                weights[f"{layer}.target"] = glorot(heads, outputs)
        return weights
