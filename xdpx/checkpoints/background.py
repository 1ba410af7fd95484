"""Write while training goes on: what is to be written is copied to the host, and a thread does the rest."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from xdpx.logger import log
from xdpx.utils.host_memory import HostMemory, copy_to_host

VARIABLE = "XDPX_SAVE_IN_BACKGROUND"
_NO = frozenset({"", "0", "false", "no", "off"})


class Background:
    """One thread at a time. Its error is logged when it happens, and raised at the next call.

    A context manager: leaving it waits. The interpreter also waits at its exit, so that nothing is lost.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._memory = HostMemory()

    @property
    def is_busy(self) -> bool:
        """Whether something is being written."""
        return self._thread is not None and self._thread.is_alive()

    @contextmanager
    def copying(self) -> Generator[None]:
        """Let what is copied to the host inside, for `start`, lie in the memory of what was written before it.

        So it waits for that first, and raises what that has raised. The memory is kept until the next time.
        """
        self.wait()
        with self._memory:
            yield

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


_of_this_process = Background()


def asked_for() -> Background | None:
    """Return the one of this process when `XDPX_SAVE_IN_BACKGROUND` asks for it, else None."""
    return None if os.environ.get(VARIABLE, "").lower() in _NO else _of_this_process


def wait_for_all() -> None:
    """Wait for what was asked for in this process, before anything that it writes is read. Raises its error."""
    _of_this_process.wait()


def copied(values: object) -> Any:
    """Return a copy on the host of dicts, lists and tuples of tensors. Tensors that share memory still do.

    Nothing that training changes later gets into the copy.
    """
    return _copied(values, {})


def _copied(value: Any, copies: dict[Any, Any]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        # Also of a tensor that requires gradients: a copy must not hold on to the graph.
        where = (value.device, value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if where not in copies or not value.numel():
            copies[where] = copy_to_host(value)
        return copies[where]
    if isinstance(value, Mapping):
        return {key: _copied(part, copies) for key, part in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(_copied(part, copies) for part in value)
    return value
