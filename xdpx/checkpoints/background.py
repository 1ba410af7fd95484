"""Write checkpoints in the background: tensors are copied to the host, and a thread writes them during training."""

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
    """Runs work in a thread, one at a time. An error is logged when it occurs, and raised by the next call.

    A context manager that waits on exit. The interpreter also waits at its exit, so that nothing is lost.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._memory = HostMemory()

    @property
    def is_busy(self) -> bool:
        """Whether the thread is running."""
        return self._thread is not None and self._thread.is_alive()

    @contextmanager
    def copying(self) -> Generator[None]:
        """Reuse the host memory of the previous copies for those made in the block, which are then passed to `start`.

        Waits for the previous work first, and raises its error. The memory is kept for the next time.
        """
        self.wait()
        with self._memory:
            yield

    def start(self, work: Callable[[], object]) -> None:
        """Wait for the previous work, then start this one in a thread. Raises the error of the previous work."""
        self.wait()
        # Not a daemon thread: the interpreter waits for it at exit.
        self._thread = threading.Thread(target=self._run, args=(work,), name="xdpx-checkpoint")
        self._thread.start()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error
            log.warning(f"A checkpoint could not be written: {error}")

    def wait(self) -> None:
        """Wait until everything is written. Raises the error of the work, once."""
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
    """Return the `Background` of this process if `XDPX_SAVE_IN_BACKGROUND` is set, else None."""
    return None if os.environ.get(VARIABLE, "").lower() in _NO else _of_this_process


def wait_for_all() -> None:
    """Wait for background writes of this process, before files that they write are read. Raises their error."""
    _of_this_process.wait()


def copied(values: object) -> Any:
    """Return a copy of dicts, lists and tuples of tensors, on the host. Tied tensors stay tied.

    The copy is not affected by later changes of the tensors.
    """
    return _copied(values, {})


def _copied(value: Any, copies: dict[Any, Any]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        # Detached also if it requires gradients: a copy must not keep the graph alive.
        where = (value.device, value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if where not in copies or not value.numel():
            copies[where] = copy_to_host(value)
        return copies[where]
    if isinstance(value, Mapping):
        return {key: _copied(part, copies) for key, part in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(_copied(part, copies) for part in value)
    return value
