"""Save and restore the states of the global random generators of the host."""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from xdpx.utils.seeds import seed_all

WATCHED_BATCHES = 2
"""Number of batches after which it is known which generators are used in making batches."""


class Randomness(NamedTuple):
    """States of the generators of Python, NumPy and torch on the host. Loading data does not use those of devices.

    None for a generator that is left out.
    """

    python: Any
    numpy: Any
    torch: torch.Tensor

    @classmethod
    def now(cls, *, python: bool = True, numpy: bool = True) -> Self:
        """Return the current states. Those of Python and NumPy take ten and fifty times as long as that of torch."""
        return cls(
            random.getstate() if python else None,
            np.random.get_state() if numpy else None,
            torch.default_generator.get_state(),
        )

    def put_back(self) -> None:
        """Restore the states."""
        if self.python is not None:
            random.setstate(self.python)
        if self.numpy is not None:
            np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)

    def saved(self) -> dict[str, Any]:
        """Return the states as plain values and tensors, which can be loaded without pickle."""
        numpy = None
        if self.numpy is not None:
            name, keys, place, has_gauss, gauss = self.numpy
            numpy = [str(name), torch.from_numpy(keys.astype(np.int64)), int(place), int(has_gauss), float(gauss)]
        return {"python": self.python, "numpy": numpy, "torch": self.torch}

    @classmethod
    def loaded(cls, saved: Mapping[str, Any]) -> Self:
        """Return the states from the result of `saved`."""
        python, numpy = saved["python"], saved["numpy"]
        if python is not None:
            version, keys, gauss = python
            python = (version, tuple(keys), gauss)
        if numpy is not None:
            name, numpy_keys, *rest = numpy
            numpy = (name, numpy_keys.numpy().astype(np.uint32), *rest)
        return cls(python, numpy, saved["torch"])


DEEPEST = 4
"""Levels on which generators are looked for: loader, batch sampler, sampler, and a sampler inside of one."""


class OwnGenerators:
    """The torch generators that a loader, its samplers or a stream have of their own, as `RandomSampler(generator=g)`.

    Their numbers go on from one epoch to the next, so that a resumed run needs their states.

    Args:
        owner: the loader, batch sampler, sampler or stream; the samplers inside it are found.
    """

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._began: list[torch.Tensor] = []

    def begin(self, saved: Mapping[str, Any] | None = None) -> None:
        """Record the states at the start of an epoch, before its order is drawn; restore those saved in it before."""
        found = self._found()
        _put_back(found, (saved or {}).get("began"))
        self._began = [each.get_state() for each in found]

    def go_on(self, saved: Mapping[str, Any] | None) -> None:
        """Restore the states that were saved at the end of an epoch, for the next one."""
        _put_back(self._found(), (saved or {}).get("now"))

    def state_dict(self) -> dict[str, list[torch.Tensor]]:
        """Return the states at the start of the epoch, and now."""
        return {"began": self._began, "now": [each.get_state() for each in self._found()]}

    def _found(self) -> list[torch.Generator]:
        found: dict[int, torch.Generator] = {}
        level: list[Any] = [self._owner]
        for _ in range(DEEPEST):
            owned = [getattr(part, "generator", None) for part in level]
            found |= {id(own): own for own in owned if isinstance(own, torch.Generator)}
            inside = [getattr(part, name, None) for part in level for name in ("batch_sampler", "sampler")]
            level = [part for part in inside if part is not None]
        return list(found.values())


def _put_back(generators: list[torch.Generator], states: list[torch.Tensor] | None) -> None:
    for generator, state in zip(generators, states or [], strict=False):
        generator.set_state(state)


class CollatorGenerators:
    """The random generators of torch, NumPy or Python that a collator keeps: `DataCollatorForLanguageModeling(seed=5)`.

    Args:
        collator: may be wrapped in one that has it as `collator`.
    """

    def __init__(self, collator: object) -> None:
        self._owner = getattr(collator, "collator", collator)

    def states(self) -> dict[str, Any]:
        """Return the states by the names of the attributes: plain values and tensors."""
        found = getattr(self._owner, "__dict__", None)  # asked for every batch; a function has none
        return {name: _state_of(each) for name, each in found.items() if _is_generator(each)} if found else {}

    def put_back(self, states: Mapping[str, Any] | None) -> None:
        """Restore the states; a generator that is made with the first batch is made now."""
        for name, state in (states or {}).items():
            generator = getattr(self._owner, name, None)
            if isinstance(state, torch.Tensor):
                generator = torch.Generator() if generator is None else generator
                generator.set_state(state)
            elif isinstance(state, Mapping):
                generator = np.random.default_rng() if generator is None else generator
                generator.bit_generator.state = state
            elif generator is not None:
                generator.setstate((state[0], tuple(state[1]), state[2]))
            setattr(self._owner, name, generator)


def _is_generator(value: object) -> bool:
    """Return whether a value is a generator whose state is plain values or a tensor."""
    if isinstance(value, np.random.Generator):
        return isinstance(value.bit_generator, np.random.PCG64)
    return isinstance(value, torch.Generator | random.Random) and not isinstance(value, random.SystemRandom)


def _state_of(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    return generator.getstate() if isinstance(generator, random.Random) else generator.bit_generator.state


class StateWatch:
    """Records the states before each batch is made: of all generators at first, then of those that batches use."""

    def __init__(self) -> None:
        self._left = WATCHED_BATCHES
        self._drawn = {"python": False, "numpy": False}
        self._before: Randomness | None = None

    def before(self) -> Randomness:
        """Record and return the states before the next batch."""
        self._before = Randomness.now() if self._left else Randomness.now(**self._drawn)
        return self._before

    def after(self) -> None:
        """After one of the first batches, check which generators were used."""
        if self._left == 0 or self._before is None:
            return
        self._left -= 1
        now = Randomness.now()
        self._drawn["python"] |= now.python != self._before.python
        self._drawn["numpy"] |= now.numpy[2:] != self._before.numpy[2:] or bool(
            (now.numpy[1] != self._before.numpy[1]).any()
        )


@contextmanager
def untouched() -> Generator[None]:
    """Restore the generators at the end of the block."""
    before = Randomness.now()
    try:
        yield
    finally:
        before.put_back()


def seed_worker(worker_index: int, num_workers: int, rank: int) -> None:
    """Seed a worker process with `num_workers * rank` plus its seed from torch, so that no two are equal.

    Args:
        worker_index: passed by torch, whose seed includes it.
        num_workers: worker processes of a rank.
        rank: rank of this worker's process.
    """
    del worker_index
    seed = num_workers * rank + torch.initial_seed() % 2**32
    seed_all(seed)
