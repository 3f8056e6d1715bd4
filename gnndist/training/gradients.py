"""Gradients summed over ranks in one message, and weights that start equal."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from gnndist.comm import Comm


def sum_gradients(parameters: Iterable[nn.Parameter], comm: Comm) -> None:
    """Replace every gradient by its sum over ranks: one flattened all-reduce.

    A parameter that no rank used keeps no gradient; one that some rank did not use counts there
    as zero.
    """
    wanted = [p for p in parameters if p.requires_grad]
    if comm.world == 1 or not wanted:
        return
    used = wanted[0].new_tensor([p.grad is not None for p in wanted])
    flat = torch.cat(
        [used, *(p.new_zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in wanted)]
    )
    comm.all_reduce(flat)
    counts, *sums = flat.split([len(wanted), *(p.numel() for p in wanted)])
    for p, count, total in zip(wanted, counts, sums, strict=True):
        p.grad = total.view_as(p) if count > 0 else None


def broadcast_state(model: nn.Module, comm: Comm) -> None:
    """Give every rank rank 0's parameters and buffers."""
    if comm.world == 1:
        return
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if comm.rank != 0:
                tensor.zero_()
            comm.all_reduce(_as_numbers(tensor))


def _as_numbers(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor
