"""Where a number that is not finite came from."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from gnndist.training.loop import Trainer


class Diverged(ArithmeticError):
    """The loss or a gradient is not finite: training cannot go on from here."""


def find_origin(trainer: "Trainer", epoch: int) -> str:
    """The module and rank where an epoch first has a number that is not finite.

    The epoch's forward pass runs again, which is the same pass: masks are functions of the epoch,
    and the weights have not moved. If every module's output is finite the backward pass runs too.
    All ranks must call this. The model is of no further use.
    """
    seen: list[tuple[int, str]] = []
    calls = 0

    def look(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            nonlocal calls
            calls += 1
            if not seen and not _finite(output):
                seen.append((calls, name))

        return hook

    model = trainer.model
    hooks = [m.register_forward_hook(look(name)) for name, m in model.named_modules() if name]
    trainer.graph.clock.start_epoch(epoch)
    loss = trainer.local_loss()
    for hook in hooks:
        hook.remove()
    if not seen and not _finite(loss):
        seen.append((calls + 1, "the loss"))
    first = _first(trainer, seen)
    if first is not None:
        return f"first in the output of {first}"
    model.zero_grad(set_to_none=True)
    loss.backward()
    # Gradients come about from the last layer to the first.
    parameters = list(model.named_parameters())[::-1]
    wrong = [
        (order, name)
        for order, (name, p) in enumerate(parameters)
        if p.grad is not None and not _finite(p.grad)
    ]
    first = _first(trainer, wrong[:1])
    if first is not None:
        return f"first in the gradient of {first}"
    return "and it is finite when the epoch is computed again"


def _first(trainer: "Trainer", mine: list[tuple[int, str]]) -> str | None:
    """The earliest over ranks of what each rank found (its position and name)."""
    found = [
        (order, rank, name)
        for rank, theirs in enumerate(trainer.comm.all_gather(mine))
        for order, name in theirs
    ]
    if not found:
        return None
    _, rank, name = min(found)
    return f"{name} on rank {rank}"


def _finite(output: Any) -> bool:
    if isinstance(output, Tensor):
        return not output.is_floating_point() or bool(torch.isfinite(output).all())
    if isinstance(output, tuple | list):
        return all(_finite(part) for part in output)
    return True
