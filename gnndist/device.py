"""Which device a rank computes on, and all that follows from it: the one place that knows CUDA."""

import os

import torch
from torch.profiler import ProfilerActivity

from gnndist.device_names import CPU, GPU
from gnndist.errors import ConfigError


def pick_device(name: str) -> torch.device:
    """The device of this rank: `auto` takes a GPU where there is one.

    Ranks of a host take its GPUs in turn.

    Raises
    ------
    ConfigError
        if `cuda` is asked for and there is none.
    """
    if name == GPU and not torch.cuda.is_available():
        raise ConfigError(f"device = {GPU!r}: this machine has none that torch can use")
    if name == CPU or not torch.cuda.is_available():
        return torch.device(CPU)
    index = int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()
    return torch.device(GPU, index)


def is_gpu(device: torch.device) -> bool:
    return device.type == GPU


def backend_for(device: torch.device, local_ranks: int) -> str:
    """What carries messages between ranks: NCCL where each rank has a GPU of its own, else gloo."""
    own_gpu = is_gpu(device) and torch.cuda.device_count() >= local_ranks
    return "nccl" if own_gpu and torch.distributed.is_nccl_available() else "gloo"


def use(device: torch.device) -> None:
    """Make it the current device."""
    if is_gpu(device):
        torch.cuda.set_device(device)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done everything it was told."""
    if is_gpu(device):
        torch.cuda.synchronize(device)


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if is_gpu(device) else CPU


def peak_device_memory(device: torch.device) -> int | None:
    """Most device memory that tensors have taken, in bytes; None on a CPU."""
    return torch.cuda.max_memory_allocated(device) if is_gpu(device) else None


def profiler_activities(device: torch.device) -> list[ProfilerActivity]:
    """What a profiler records."""
    on_gpu = [ProfilerActivity.CUDA] if is_gpu(device) else []
    return [ProfilerActivity.CPU, *on_gpu]


def pinned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Uninitialised memory of the host that a GPU copies to and from at full speed."""
    return torch.empty(shape, dtype=dtype, pin_memory=torch.cuda.is_available())
