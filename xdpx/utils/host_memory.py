"""Copy tensors to host memory that is reused from copy to copy.

Fresh memory costs more than the copy itself, because the system zeroes every page on first use.
"""

from __future__ import annotations

from collections import defaultdict
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from torch import Tensor


class HostMemory:
    """Buffers for successive copies of a training state, of which only the first copy has to allocate.

    A context manager: inside it, `copy_to_host` in this thread copies into these buffers and overwrites the previous
    copies. Buffers that the newest state did not use are freed on exit.
    """

    def __init__(self) -> None:
        self._used: defaultdict[Any, list[Tensor]] = defaultdict(list)
        self._free: defaultdict[Any, list[Tensor]] = defaultdict(list)
        self._token: Token[HostMemory | None] | None = None

    def __enter__(self) -> Self:
        self._free, self._used = self._used, defaultdict(list)
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _current.reset(self._token)
        self._free.clear()

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy of a dense tensor, in memory that the copy of the next state overwrites."""
        kind = (tensor.dtype, tensor.shape, tensor.stride())
        free = self._free[kind]
        place = free.pop() if free else _like(tensor)
        self._used[kind].append(place)
        return place.copy_(tensor)


_current: ContextVar[HostMemory | None] = ContextVar("host memory", default=None)


def _like(tensor: Tensor) -> Tensor:
    import torch

    return torch.empty_like(tensor, device="cpu")


def copy_to_host(tensor: Tensor) -> Tensor:
    """Return a detached copy of a tensor on the CPU, in the active `HostMemory` if there is one.

    Sparse and quantised tensors are always copied to fresh memory.
    """
    import torch

    memory, source = _current.get(), tensor.detach()
    if memory is None or source.layout != torch.strided or source.is_quantized:
        return source.to("cpu", copy=True)
    return memory.copy(source)
