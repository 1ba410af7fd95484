"""Names in configs -> classes. Nothing is imported until its name is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from xdpx.config import packages
from xdpx.config.faults import THIS_RUN, ConfigError, unknown_name

T = TypeVar("T")
C = TypeVar("C")

REGISTRIES: dict[str, Registry[Any]] = {}
"""Every registry of names in configs made so far, by kind: `config` sees a user's own names and imports no room."""

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
    "schedule": "xdpx.search.schedules",
    "tuner": "xdpx.search.tuners",
}
"""The room whose `__init__` holds the table of each kind. Read only when a class itself is needed, never to check."""


class Registry(Generic[T]):
    """A table of names: those that ship, those that a user registers, those that installed packages offer.

    Args:
        kind: what it holds, such as "model"; packages offer theirs as entry points `xdpx.<kind>`.
        shipped: maps a name to "module:attribute", read at first use.
        base: the class ("module:attribute") whose defaults stand in for what a user's own class leaves out that does
            not derive from it; "" leaves such a class as it is.
        in_configs: whether keys of configs name what it holds.
    """

    def __init__(self, kind: str, shipped: Mapping[str, str], *, base: str = "", in_configs: bool = True) -> None:
        self.kind = kind
        self._base = base
        self.shipped = dict(shipped)
        self._loaded: dict[str, T] = {}
        if in_configs:
            REGISTRIES[kind] = self

    def register(self, name: str) -> Callable[[C], C]:
        """Add a user's own class under `name`. Raises ValueError if the name is taken."""

        def add(thing: C) -> C:
            points = packages.offered(self.kind).get(name, ())
            strangers = [point for point in points if not _of_one_package(thing, point.module)]
            if name in self.shipped or name in self._loaded or strangers:
                by = "".join(f" ({packages.package_of(point)} offers it)" for point in strangers[:1])
                raise ValueError(f"{self.kind} '{name}' exists already{by}; give yours another name.")
            self._loaded[name] = thing  # type: ignore[assignment]
            return thing

        return add

    def own(self) -> dict[str, T]:
        """Return what does not ship and was loaded: a user's own entries, and those of packages that were used."""
        return {name: thing for name, thing in self._loaded.items() if name not in self.shipped}

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise ConfigError(self.kind, [unknown_name(self.kind, name, self)])
        if name not in self._loaded:
            self._loaded[name] = self._import(name)
        if name not in self.shipped:
            self._loaded[name] = self._on_base(self._loaded[name])
        return self._loaded[name]

    def _on_base(self, thing: T) -> T:
        """Return a user's class with the defaults of the base behind it, so that nobody asks what it lacks."""
        if not self._base or not isinstance(thing, type):
            return thing
        base = _attribute(self._base)
        if issubclass(thing, base):
            return thing
        says = {"__module__": thing.__module__, "__qualname__": thing.__qualname__, "__doc__": thing.__doc__}
        return cast("T", type(thing.__name__, (thing, base), says))

    def _import(self, name: str) -> T:
        fault = packages.ambiguity(self.kind, name, shipped=name in self.shipped)
        if fault:
            raise ConfigError(THIS_RUN, [fault])
        if name not in self.shipped:
            return cast("T", packages.load(packages.offered(self.kind)[name][0]))
        return cast("T", _attribute(self.shipped[name]))

    def __contains__(self, name: object) -> bool:
        return name in self.shipped or name in self._loaded or name in packages.offered(self.kind)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self.shipped, *self._loaded, *packages.offered(self.kind)}))


def _attribute(source: str) -> Any:
    """Import "module:attribute"."""
    module, _, attribute = source.partition(":")
    return getattr(import_module(module), attribute)


def _of_one_package(thing: object, module: str) -> bool:
    """Tell whether a class stands in the package of `module`, which may then both offer and register it."""
    return getattr(thing, "__module__", "").partition(".")[0] == module.partition(".")[0]


def registry_of(kind: str) -> Registry[Any]:
    """Return the registry of a kind; its room's table is imported when it has not been yet.

    Raises:
        KeyError: no room has such a kind, which is a mistake in a declaration.
    """
    if kind not in REGISTRIES:
        import_module(ROOMS[kind])
    return REGISTRIES[kind]
