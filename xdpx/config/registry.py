"""Registries that map names in configs to classes, which are imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from xdpx.config import packages
from xdpx.config.faults import THIS_RUN, ConfigError, refusal, unknown_name

T = TypeVar("T")
C = TypeVar("C")

REGISTRIES: dict[str, Registry[Any]] = {}
"""All registries created so far that configs can name, by kind; so `config` knows users' names without imports."""

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
"""Kind -> module that defines its registry. Imported only if a class itself is needed, not to check a config."""


class Registry(Generic[T]):
    """Names and their classes: shipped ones, those that users register, and those of installed packages.

    Args:
        kind: what it contains, such as "model"; packages offer theirs as entry points `xdpx.<kind>`.
        shipped: name -> "module:attribute", imported on first use.
        base: class ("module:attribute") that users' classes have to derive from; "" for none.
        adopts: whether `base` is added to users' classes that do not derive from it, so that they have its defaults.
        classes: whether all are classes; else functions and other objects, too.
        in_configs: whether keys of configs can name its classes.
    """

    def __init__(
        self,
        kind: str,
        shipped: Mapping[str, str],
        *,
        base: str = "",
        adopts: bool = False,
        classes: bool = True,
        in_configs: bool = True,
    ) -> None:
        self.kind = kind
        self._base, self._adopts, self._classes = base, adopts, classes
        self.shipped = dict(shipped)
        self._loaded: dict[str, T] = {}
        if in_configs:
            REGISTRIES[kind] = self

    def register(self, name: str) -> Callable[[C], C]:
        """Return a decorator that registers a user's class as `name`; it raises ValueError if the name is taken."""

        def add(thing: C) -> C:
            points = packages.offered(self.kind).get(name, ())
            package = getattr(thing, "__module__", "").partition(".")[0]  # may both offer and register it
            strangers = [point for point in points if point.module.partition(".")[0] != package]
            if name in self.shipped or name in self._loaded or strangers:
                by = "".join(f" ({packages.package_of(point)} offers it)" for point in strangers[:1])
                raise ValueError(f"{self.kind} '{name}' already exists{by}; give yours another name.")
            self._loaded[name] = thing  # type: ignore[assignment]
            return thing

        return add

    def own(self) -> dict[str, T]:
        """Return the entries that are not shipped: users' own, and those of packages that have been loaded."""
        return {name: thing for name, thing in self._loaded.items() if name not in self.shipped}

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise ConfigError(self.kind, [unknown_name(self.kind, name, self)])
        if name not in self._loaded:
            self._loaded[name] = self._import(name)
        if name not in self.shipped:
            self._loaded[name] = self._on_base(name, self._loaded[name])
        return self._loaded[name]

    def _on_base(self, name: str, thing: T) -> T:
        """Return a user's class, with `base` added as its last base class if it does not derive from it.

        Raises:
            ConfigError: it is no class, or would have to derive from `base` by itself.
        """
        if not self._classes:
            return thing
        if not isinstance(thing, type):
            where = f" that derives from {self._base.replace(':', '.')}" * bool(self._base)
            problem = (
                f"'{name}' is {getattr(thing, '__name__', repr(thing)):.60} ({type(thing).__name__}), not a class."
            )
            raise refusal(self.kind, problem, f"Register a class{where}.")
        base = _attribute(self._base) if self._base else thing
        if issubclass(thing, base):
            return thing
        if not self._adopts:
            problem = f"'{name}' is of the class {thing.__name__}, which does not derive from {base.__name__}."
            raise refusal(self.kind, problem, f"Derive it from {self._base.replace(':', '.')}.")
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
    """Return "module:attribute", importing the module."""
    module, _, attribute = source.partition(":")
    return getattr(import_module(module), attribute)


def registry_of(kind: str) -> Registry[Any]:
    """Return the registry of a kind, importing the module that defines it if necessary.

    Raises:
        KeyError: there is no such kind, which is a mistake in a declaration.
    """
    if kind not in REGISTRIES:
        import_module(ROOMS[kind])
    return REGISTRIES[kind]


def are_shipped(*parts: object) -> bool:
    """Return whether the classes of all parts come with XDPX, unlike those of users and of other packages."""
    return all(type(part).__module__.partition(".")[0] == "xdpx" for part in parts)


def made(kind: str, chosen: Callable[..., T], *words: Any, **named: Any) -> T:
    """Return an object of a class of a kind. Raises ConfigError if it cannot be called so: it may be the user's own."""
    try:
        return chosen(*words, **named)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # from within its __init__
        remedy = "Take what its base class takes, pass it on to super().__init__, and define what is abstract there."
        raise refusal(kind, f"no {chosen.__name__} can be made: {error}.", remedy) from error
