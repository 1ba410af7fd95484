"""Classes of installed packages: entry points `xdpx.<kind>`, whose names are read without importing the packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from xdpx.config.faults import ConfigError, Fault

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

OLDER_GROUPS = {"callback": "xdpx.callbacks"}
"""Kind -> its former entry point group, which is still accepted."""


@cache
def offered(kind: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return {name: entry points} of `[project.entry-points."xdpx.<kind>"]` in all installed packages."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for group in filter(None, (f"xdpx.{kind}", OLDER_GROUPS.get(kind))):
        for point in _entry_points().select(group=group):
            found[point.name] = (*found.get(point.name, ()), point)
    return found


@cache
def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # here, because it takes as long as all other imports of a command

    return cast("EntryPoints", entry_points())  # Python 3.11 has another class here, with the same `select`


def ambiguity(kind: str, name: str, *, shipped: bool) -> Fault | None:
    """Return a fault if two packages offer a name, or one does and XDPX ships it; else None."""
    points = offered(kind).get(name, ())
    if len(points) + shipped < 2 or not points:
        return None
    owners = [*sorted(map(package_of, points)), *(["XDPX"] if shipped else [])]
    problem = f"is '{name}', which {' and '.join(owners)} define, so it is ambiguous."
    return Fault(kind, problem, "Uninstall the package, or ask its authors for another name.")


def load(point: EntryPoint) -> Any:
    """Return the object that an entry point names, importing its module.

    Raises:
        ConfigError: the import fails, or the module lacks the attribute.
    """
    try:
        return point.load()
    except Exception as error:  # an import may raise anything
        problem = f"({point.value}) cannot be imported: {type(error).__name__}: {error}."
        remedy = "Fix or uninstall the package; --verbose shows the traceback."
        raise ConfigError(package_of(point), [Fault(f"{point.group} {point.name}", problem, remedy)]) from error


def package_of(point: EntryPoint) -> str:
    """Return name and version of the package that an entry point belongs to; its module if unknown."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module
