"""What installed packages offer: entry points `xdpx.<kind>`, whose names are read without importing anything."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from xdpx.config.faults import ConfigError, Fault

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

OLDER_GROUPS = {"callback": "xdpx.callbacks"}
"""Groups that packages may still use, by the kind that has another one now."""


@cache
def offered(kind: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return {name: the entry points that offer it} of `[project.entry-points."xdpx.<kind>"]`, over all packages."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for group in filter(None, (f"xdpx.{kind}", OLDER_GROUPS.get(kind))):
        for point in _entry_points().select(group=group):
            found[point.name] = (*found.get(point.name, ()), point)
    return found


@cache
def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # here: it costs as much as the rest of what a command imports

    return cast("EntryPoints", entry_points())  # Python 3.11 has another class here, with the same `select`


def ambiguity(kind: str, name: str, *, shipped: bool) -> Fault | None:
    """Return the fault that a name could mean several things: two packages offer it, or one does and XDPX ships it."""
    points = offered(kind).get(name, ())
    if len(points) + shipped < 2 or not points:
        return None
    owners = [*sorted(map(package_of, points)), *(["XDPX"] if shipped else [])]
    problem = f"is '{name}', which {' and '.join(owners)} have, so it could mean either."
    return Fault(kind, problem, "Uninstall the package, or ask its authors for another name.")


def load(point: EntryPoint) -> Any:
    """Import what an entry point names and return it.

    Raises:
        ConfigError: the import fails, or the module has no such thing.
    """
    try:
        return point.load()
    except Exception as error:  # whatever a module does when it is imported
        problem = f"({point.value}) cannot be imported: {type(error).__name__}: {error}."
        remedy = "Mend or uninstall the package; --verbose shows the traceback."
        raise ConfigError(package_of(point), [Fault(f"{point.group} {point.name}", problem, remedy)]) from error


def package_of(point: EntryPoint) -> str:
    """Return the installed package that an entry point belongs to, with its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module
