"""Make batches in a thread while the devices are busy; the state is that of the batch that was given last."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Self

from numpy.typing import NDArray

from xdpx.config.hparams import BaseHParams, build
from xdpx.datasets.ahead import ahead
from xdpx.datasets.inputs.base_input import BaseInput, State
from xdpx.utils.nested_map import NestedMap


class PrefetchedInput(BaseInput):
    """Gives what another input gives, made up to `depth` batches ahead.

    All else it is asked for, the other input answers. Between batches the thread alone touches the other input, except
    where nothing can change it (texts of ids, names, specs that need no batch).

    Attributes:
        inner: the other input.
        depth: how many batches may wait.
    """

    inner: BaseInput
    depth: int
    _running: Generator[tuple[NestedMap, State]] | None
    _state: State

    class HParams(BaseInput.HParams):
        """Those of the other input are used."""

    @classmethod
    def around(cls, inner: BaseInput, depth: int) -> Self:
        """Read `inner` ahead. Nobody else may read it from now on."""
        made = object.__new__(cls)
        made.__dict__.update(_hparams=inner.hparams, inner=inner, depth=depth, _running=None, _state=inner.get_state())
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    def get_next(self) -> NestedMap:
        """Return the next batch; what making it raised is raised here, after the batches before it."""
        if self._running is None:
            self._running = ahead(self._produce, depth=self.depth)
        batch, self._state = next(self._running)
        return batch

    def _produce(self, stop: threading.Event) -> Iterator[tuple[NestedMap, State]]:
        while not stop.is_set():
            try:
                batch = self.inner.get_next()
            except StopIteration:
                return
            yield batch, self.inner.get_state()

    def get_state(self) -> State:
        """Tell where the consumer stands, not the thread."""
        return dict(self._state)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Throw away what was made ahead and return to a place."""
        self._stop()
        self.inner.set_state(state)
        self._state = self.inner.get_state()

    @property
    def replay(self) -> str:
        """Ask the other input."""
        return self.inner.replay

    def reset(self) -> None:
        """Throw away what was made ahead and begin anew."""
        self._stop()
        self.inner.reset()
        self._state = self.inner.get_state()

    def spec(self) -> NestedMap:
        """Return the ArraySpec of every array: without a batch where the other input knows it."""
        return BaseInput.spec(self) if type(self.inner).spec is BaseInput.spec else self.inner.spec()

    def ids_to_strings(
        self, ids: NDArray[Any], lengths: NDArray[Any] | None = None, key: str | None = None
    ) -> list[str]:
        """Ask the other input."""
        return self.inner.ids_to_strings(ids, lengths, key)

    def tokenizer_digest(self, key: str | None = None) -> str | None:
        """Ask the other input."""
        return self.inner.tokenizer_digest(key)

    def close(self) -> None:
        """End the thread, and close the other input."""
        self._stop()
        self.inner.close()

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()


def build_input(template: BaseHParams) -> BaseInput:
    """Build an input from its template, read ahead where its `prefetch` says so."""
    built: BaseInput = build(template)
    depth = built.hparams.prefetch
    return PrefetchedInput.around(built, depth) if depth else built
