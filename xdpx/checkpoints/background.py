"""Write while training goes on: what is to be written is copied to the host, and a thread does the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from xdpx.logger import log


class Background:
    """One thread at a time. Its error is logged when it happens, and raised at the next call.

    A context manager: leaving it waits. The interpreter also waits at its exit, so that nothing is lost.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something is being written."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], object]) -> None:
        """Wait for the work before this one, then begin this one. Raises what the one before has raised."""
        self.wait()
        # No daemon: a process that ends normally first lets it finish.
        self._thread = threading.Thread(target=self._run, args=(work,), name="xdpx-checkpoint")
        self._thread.start()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error
            log.warning(f"A checkpoint could not be written: {error}")

    def wait(self) -> None:
        """Wait until everything is written. Raises what went wrong meanwhile, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __enter__(self) -> Background:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.wait()
        elif self._thread is not None:
            self._thread.join()


def copied(values: Any) -> Any:
    """Give a copy on the host of dicts, lists and tuples of tensors. Tensors that share memory still do.

    The devices are waited for once, so that nothing that training changes later gets into the copy.
    """
    import torch

    copies: dict[Any, Any] = {}
    result = _copied(values, copies)
    for device in {where for where, *_ in copies if where.type == "cuda"}:
        torch.cuda.synchronize(device)
    return result


def _copied(value: Any, copies: dict[Any, Any]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return _copy_of(value.detach(), copies)
    if isinstance(value, Mapping):
        return {key: _copied(part, copies) for key, part in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(_copied(part, copies) for part in value)
    return value


def _copy_of(tensor: Any, copies: dict[Any, Any]) -> Any:
    import torch

    if tensor.device.type == "meta" or not tensor.is_contiguous() or tensor.layout != torch.strided:
        return tensor.to("cpu", copy=True)
    place = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape))
    if place not in copies or not tensor.numel():
        on_gpu = tensor.device.type == "cuda"
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=on_gpu)
        copies[place] = copy.copy_(tensor, non_blocking=on_gpu)
    return copies[place]
