"""Prefetching of inputs: a thread makes batches ahead, and the state is that after the last batch returned."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Self

from numpy.typing import NDArray

from xdpx.config.hparams import BaseHParams, build
from xdpx.datasets.ahead import ahead
from xdpx.datasets.inputs.base_input import BaseInput, State
from xdpx.datasets.inputs.refilling import Apart
from xdpx.utils.nested_map import NestedMap


class PrefetchedInput(BaseInput):
    """Wraps an input, and makes up to `depth` batches ahead in a thread.

    Other attributes are those of the wrapped input. While the thread runs, only it uses the wrapped input, except for
    calls that do not change it (texts of ids, names, specs that need no batch).

    Attributes:
        inner: the wrapped input.
        depth: maximum number of batches made ahead.
    """

    inner: BaseInput
    depth: int
    _running: Generator[tuple[NestedMap, State]] | None
    _state: State
    _apart: Apart

    class HParams(BaseInput.HParams):
        """Not used; those of the wrapped input are."""

    @classmethod
    def around(cls, inner: BaseInput, depth: int) -> Self:
        """Return an input that prefetches from `inner`, which must not be read directly from now on."""
        made = object.__new__(cls)
        made.__dict__.update(_hparams=inner.hparams, inner=inner, depth=depth, _running=None, _state=inner.get_state())
        made._apart = Apart(depth + 2)  # also one that the thread has made, and one that is in use
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    def get_next(self) -> NestedMap:
        """Return the next batch. Exceptions of the thread are raised here, after the batches before them."""
        if self._running is None:
            self._running = ahead(self._produce, depth=self.depth)
        batch, self._state = next(self._running)
        return batch

    def _produce(self, stop: threading.Event) -> Iterator[tuple[NestedMap, State]]:
        while not stop.is_set():
            try:
                batch = self._apart.of(self.inner.get_next())
            except StopIteration:
                return
            yield batch, self.inner.get_state()

    def get_state(self) -> State:
        """Return the position of the consumer, not of the thread."""
        return dict(self._state)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Discard the batches made ahead, and restore a position."""
        self._stop()
        self.inner.set_state(state)
        self._state = self.inner.get_state()

    @property
    def replay(self) -> str:
        """That of the wrapped input."""
        return self.inner.replay

    def reset(self) -> None:
        """Discard the batches made ahead, and start again from the first batch."""
        self._stop()
        self.inner.reset()
        self._state = self.inner.get_state()

    def spec(self) -> NestedMap:
        """Return the ArraySpec of every array, without making a batch if the wrapped input can."""
        return BaseInput.spec(self) if type(self.inner).spec is BaseInput.spec else self.inner.spec()

    def ids_to_strings(
        self, ids: NDArray[Any], lengths: NDArray[Any] | None = None, key: str | None = None
    ) -> list[str]:
        """Return the result of the wrapped input."""
        return self.inner.ids_to_strings(ids, lengths, key)

    def tokenizer_digest(self, key: str | None = None) -> str | None:
        """Return the result of the wrapped input."""
        return self.inner.tokenizer_digest(key)

    def close(self) -> None:
        """End the thread, and close the wrapped input."""
        self._stop()
        self.inner.close()

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()


def build_input(template: BaseHParams) -> BaseInput:
    """Return the input that a template builds, with prefetching if its `prefetch` is set."""
    built: BaseInput = build(template)
    depth = built.hparams.prefetch
    return PrefetchedInput.around(built, depth) if depth else built
