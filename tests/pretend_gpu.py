"""A GPU that is none: what a run on a GPU does wrong with devices, found without one.

Tensors say that they are on `GPU` and compute on the CPU. As on a GPU, they do not mix with
tensors of the CPU (copies aside), and have no numpy array. The device guard of torch plays no
part, nor does any kernel of CUDA.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from gnndist.device_names import CPU as CPU_NAME
from gnndist.device_names import GPU as GPU_NAME

CPU, GPU = torch.device(CPU_NAME), torch.device(GPU_NAME, 0)
_LOCK = threading.Lock()
MAY_MIX = ("aten::copy_", "aten::_to_copy", "aten::index_put", "aten::_index_put_impl_")
"""copies, and where torch's backward of an index makes zeros by itself"""


class OnGpu(Tensor):
    """A tensor that says it is on the GPU."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> "OnGpu":
        strided = inner.layout == torch.strided
        tensor = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride() if strided else None,
            storage_offset=inner.storage_offset() if strided else None,
            dtype=inner.dtype,
            device=CPU,  # for torch's own code, which has no GPU to ask
        )
        tensor.inner = inner
        return tensor

    def __init__(self, inner: Tensor) -> None:
        pass

    @property
    def device(self) -> torch.device:
        return GPU

    def tolist(self) -> Any:
        return self.inner.tolist()

    def set_(self, *where: Any) -> "OnGpu":
        return OnGpu(self.inner.set_(*where))

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert a tensor on the GPU to numpy: copy it to the host first")

    def __repr__(self) -> str:
        return f"OnGpu({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func.name().partition(".")[0]
        for leaf in tree_leaves((args, kwargs)):
            host = isinstance(leaf, Tensor) and not isinstance(leaf, OnGpu) and leaf.dim() > 0
            if host and name not in MAY_MIX:
                raise RuntimeError(f"{name}: tensors on {GPU} and on the CPU {tuple(leaf.shape)}")
        out = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        in_place = name.endswith("_") and not name.endswith("__")
        if "out" in kwargs or in_place:
            return kwargs.get("out", args[0])
        return tree_map(_outer, out)


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, OnGpu) else value


def _outer(value: Any) -> Any:
    return OnGpu(value) if isinstance(value, Tensor) and not isinstance(value, OnGpu) else value


FACTORIES = ("arange", "empty", "full", "ones", "rand", "randn", "scalar_tensor", "tensor", "zeros")
"""functions of torch that take a device and no tensor"""


def _made(make: Callable[..., Any]) -> Callable[..., Any]:
    """A factory that knows the GPU that is none."""

    @functools.wraps(make)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not _is_gpu(kwargs.get("device")):
            return make(*args, **kwargs)
        return OnGpu(make(*args, **kwargs | {"device": CPU}))

    return wrapped


def _moved(to: Callable[..., Any]) -> Callable[..., Any]:
    """`Tensor.to`, to it and back."""

    @functools.wraps(to)
    def wrapped(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        there, back = any(map(_is_gpu, given)), any(map(_is_cpu, given))
        args = tuple(CPU if _is_gpu(value) else value for value in args)
        kwargs = {name: CPU if _is_gpu(value) else value for name, value in kwargs.items()}
        if back and isinstance(tensor, OnGpu):
            return to(tensor.inner.detach().clone(), *args, **kwargs)
        if there and isinstance(tensor, OnGpu):  # perhaps to another type
            types = [value for value in given if isinstance(value, torch.dtype)]
            return to(tensor, *types) if types else tensor
        out = to(tensor, *args, **kwargs)
        return OnGpu(out.detach().clone()) if there else out

    return wrapped


def _install() -> None:
    """For the rest of this process; nothing else notices."""
    if hasattr(torch.Tensor.to, "__wrapped__"):
        return
    for name in FACTORIES:
        setattr(torch, name, _made(getattr(torch, name)))
    sparse = torch.sparse_csr_tensor
    host = Tensor.cpu
    torch.sparse_csr_tensor = lambda *args, **kwargs: _like(
        args[0], sparse(*map(_inner, args), **kwargs)
    )
    new_tensor = Tensor.new_tensor
    torch.Tensor.new_tensor = lambda tensor, *args, **kwargs: _like(
        tensor, new_tensor(_inner(tensor), *args, **kwargs)
    )
    torch.Tensor.cpu = lambda tensor: host(_inner(tensor)).detach()
    torch.Tensor.to = _moved(torch.Tensor.to)
    # A module's parameters must become other objects when it is moved.
    torch.__future__.set_overwrite_module_params_on_conversion(True)


def _like(example: Any, tensor: Tensor) -> Tensor:
    return OnGpu(tensor) if isinstance(example, OnGpu) else tensor


def _is_gpu(value: Any) -> bool:
    return _kind(value) == GPU.type


def _is_cpu(value: Any) -> bool:
    return _kind(value) == "cpu"


def _kind(value: Any) -> str:
    """The kind of device that a value names, if it names one."""
    if isinstance(value, torch.device):
        return value.type
    return value.partition(":")[0] if isinstance(value, str) else ""


@contextmanager
def pretend() -> Iterator[torch.device]:
    """Use the GPU that is none."""
    with _LOCK:
        _install()
    yield GPU
