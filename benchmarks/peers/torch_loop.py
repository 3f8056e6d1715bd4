"""The epoch of a plain torch model, the same for DGL and PyG."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from peers.problem import Problem
from torch import Tensor, nn


class Layers(nn.Module):
    """Convolutions with ReLU (gat: ELU) and dropout between them.

    `apply` calls a convolution with features [N, in] and returns [N, out].
    """

    def __init__(
        self, convs: list[nn.Module], problem: Problem, apply: Callable[[nn.Module, Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.activation = nn.ELU() if problem.model == "gat" else nn.ReLU()
        self.dropout = nn.Dropout(problem.dropout)
        self.apply_conv = apply

    def forward(self, x: Tensor) -> Tensor:
        for layer, conv in enumerate(self.convs):
            if layer > 0:
                x = self.dropout(self.activation(x))
            x = self.apply_conv(conv, x)
        return x


def epoch_of(model: nn.Module, problem: Problem) -> Callable[[int], float]:
    """A function that runs one epoch of full-batch training and returns its loss."""
    model.train()
    x = torch.from_numpy(problem.array("features"))
    train = torch.from_numpy(problem.array("train"))
    target = torch.from_numpy(problem.array("labels"))[train]
    optimizer = torch.optim.Adam(model.parameters(), lr=problem.lr)

    def epoch(number: int) -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x)[train], target)
        loss.backward()
        optimizer.step()
        return float(loss)

    return epoch


def set_weights(parameters: dict[str, Tensor], problem: Problem) -> None:
    """Copy the problem's first weights into parameters of those names (any equal-sized shape)."""
    given = problem.weights()
    if given.keys() != parameters.keys():
        raise SystemExit(f"weights {sorted(given)} but parameters {sorted(parameters)}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(given[name]).view(parameter.shape))
