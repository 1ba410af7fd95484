"""Names in configs -> classes. Nothing is imported until its name is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from xdpx.config.faults import ConfigError, unknown_name

T = TypeVar("T")
C = TypeVar("C")

REGISTRIES: dict[str, Registry[Any]] = {}
"""Every registry made so far, by kind, so that `config` can see a user's own names without importing the rooms."""

ROOMS: dict[str, str] = {
    "command": "xdpx.commands",
    "parser": "xdpx.loaders.parsers",
    "loader": "xdpx.loaders",
    "tokenizer": "xdpx.tokenizers",
    "processor": "xdpx.processors",
    "dataset": "xdpx.datasets",
    "sampler": "xdpx.datasets",
    "task": "xdpx.tasks",
    "model": "xdpx.models",
    "loss": "xdpx.losses",
    "optimizer": "xdpx.optimizers",
    "lr_scheduler": "xdpx.optimizers.lr_schedulers",
    "callback": "xdpx.trainer.hooks",
}
"""The room whose `__init__` holds the table of each kind. Read only when a class itself is needed, never to check."""


class Registry(Generic[T]):
    """A table of names. `shipped` maps a name to "module:attribute", read at first use."""

    def __init__(self, kind: str, shipped: Mapping[str, str]) -> None:
        self.kind = kind
        self.shipped = dict(shipped)
        self._loaded: dict[str, T] = {}
        REGISTRIES[kind] = self

    def register(self, name: str) -> Callable[[C], C]:
        """Add a user's own class under `name`. Raises ValueError if the name is taken."""

        def add(thing: C) -> C:
            if name in self:
                raise ValueError(f"{self.kind} '{name}' exists already; give yours another name.")
            self._loaded[name] = thing  # type: ignore[assignment]
            return thing

        return add

    def own(self) -> dict[str, T]:
        """Give the user's own entries: those registered by a decorator, not shipped."""
        return {name: thing for name, thing in self._loaded.items() if name not in self.shipped}

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise ConfigError(self.kind, [unknown_name(self.kind, name, self)])
        if name not in self._loaded:
            module, _, attribute = self.shipped[name].partition(":")
            self._loaded[name] = getattr(import_module(module), attribute)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self.shipped or name in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self.shipped, *self._loaded}))


def registry_of(kind: str) -> Registry[Any]:
    """Give the registry of a kind; its room's table is imported when it has not been yet.

    Raises:
        KeyError: no room has such a kind, which is a mistake in a declaration.
    """
    if kind not in REGISTRIES:
        import_module(ROOMS[kind])
    return REGISTRIES[kind]
