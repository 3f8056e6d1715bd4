"""Where a number that is not finite came from."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    watch = _Watch()
    model = trainer.model
    trainer.graph.clock.start_epoch(epoch)
    with watch.over(model):
        loss = trainer.local_loss()
    seen = watch.first
    if not seen and not _finite(loss):
        seen.append((watch.calls + 1, "the loss"))
    first = _first(trainer, seen)
    if first is not None:
        return f"first in the output of {first}"
    first = _first(trainer, _first_gradient(model, loss))
    if first is not None:
        return f"first in the gradient of {first}"
    return "and it is finite when the epoch is computed again"


def _first_gradient(model: nn.Module, loss: Tensor) -> list[tuple[int, str]]:
    """The first of the parameters' gradients, in the order they come about, that is not finite."""
    calls = 0
    first: list[tuple[int, str]] = []

    def looking(name: str) -> Callable[[Tensor], None]:
        def look(parameter: Tensor) -> None:
            nonlocal calls
            calls += 1
            if not first and not _finite(parameter.grad):
                first.append((calls, name))

        return look

    model.zero_grad(set_to_none=True)
    hooks = [
        p.register_post_accumulate_grad_hook(looking(name))
        for name, p in model.named_parameters()
        if p.requires_grad
    ]
    loss.backward()
    for hook in hooks:
        hook.remove()
    return first


class _Watch:
    """Which of a model's modules first returns a number that is not finite."""

    ENTRIES = ("forward", "without_bias", "after_relu")
    """methods that return a module's output; the last two are what stacks call in its place"""

    def __init__(self) -> None:
        self.calls = 0
        self.first: list[tuple[int, str]] = []

    @contextmanager
    def over(self, model: nn.Module) -> Iterator[None]:
        """Look at every module's output while the block runs."""
        wrapped = [
            (module, entry)
            for name, module in model.named_modules()
            for entry in self.ENTRIES
            if name and hasattr(module, entry)
        ]
        names = {module: name for name, module in model.named_modules()}
        for module, entry in wrapped:
            setattr(module, entry, self._looking(names[module], getattr(module, entry)))
        try:
            yield
        finally:
            for module, entry in wrapped:
                delattr(module, entry)

    def _looking(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def look(*args: Any, **kwargs: Any) -> Any:
            output = method(*args, **kwargs)
            self.calls += 1
            if not self.first and not _finite(output):
                self.first.append((self.calls, name))
            return output

        return look


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
