"""The exact savings: each can be switched off, and no result depends on it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Savings:
    """What is saved of work and traffic. Results are equal with any combination."""

    linear_first: bool = True
    """aggregate at the narrower of a layer's two widths: Â(HW) where it narrows"""
    propagate_once: bool = True
    """aggregate the input features once, where no dropout changes them"""
    cover: bool = True
    """messages by minimum vertex cover: sums formed at the sender where that takes fewer"""
    active_sets: bool = True
    """compute each layer only where the loss needs it"""
    overlap: bool = True
    """exchange beside the local work"""
