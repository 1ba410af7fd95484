"""Find experiment classes by name: a dotted suffix of `module.Class`, old Pax paths, `my.py:Exp`, `package.mod.Exp`."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from xdpx.config import packages
from xdpx.config.faults import ConfigError, Fault, nearest
from xdpx.experiments.base_experiment import BaseExperiment
from xdpx.experiments.shipped import SHIPPED
from xdpx.utils import io

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

C = TypeVar("C", bound=type[BaseExperiment])

_registered: dict[str, type[BaseExperiment]] = {}
_tags: dict[str, frozenset[str]] = {}
_OLD = re.compile(r"^(?:paxml\.)?tasks\.(?=\w+\.)")


@overload
def register(cls: C) -> C: ...
@overload
def register(*, tags: Iterable[str] = (), allow_overwrite: bool = False) -> Callable[[C], C]: ...
def register(cls: C | None = None, *, tags: Iterable[str] = (), allow_overwrite: bool = False) -> Any:
    """Register an experiment as `module.Class`, so that `--exp` finds it: `@register` or `@register(tags=["lm"])`.

    Raises:
        TypeError: it is not an experiment class.
        ValueError: another class has the same name, and this is not a reload of it.
    """

    def store(given: C) -> C:
        _store(given, frozenset(tags), allow_overwrite)
        return given

    return store if cls is None else store(cls)


experiment = register


def _store(cls: type[BaseExperiment], tags: frozenset[str], allow_overwrite: bool) -> None:
    if not (isinstance(cls, type) and issubclass(cls, BaseExperiment)):
        raise TypeError(f"{cls!r} is not an experiment: derive it from xdpx.experiments.BaseExperiment.")
    name = f"{cls.__module__}.{cls.__qualname__}"
    before = _registered.get(name)
    if before is not None and not allow_overwrite and _file_of(before) != _file_of(cls):
        raise ValueError(f"experiment '{name}' exists already; give yours another name, or set allow_overwrite=True.")
    _registered[name] = cls
    _tags[name] = tags


def _file_of(cls: type) -> str:
    """Return the file or module of a class: the same one again is a reload, also in a notebook."""
    module = sys.modules.get(cls.__module__)
    return getattr(module, "__file__", None) or cls.__module__


def names(tag: str | None = None) -> list[str]:
    """Return all names, sorted, without importing shipped experiments or those of `xdpx.experiment` entry points.

    With a tag, only the imported experiments that have it.
    """
    if tag is not None:
        return sorted(name for name, tags in _tags.items() if tag in tags)
    shipped = {f"{module}.{name}" for module, listed in SHIPPED.items() for name in listed}
    return sorted({*shipped, *_registered, *_offered()})


def _offered() -> dict[str, EntryPoint]:
    """Return the entry points of packages by the full names of their classes."""
    points = [point for each in packages.offered("experiment").values() for point in each]
    return {point.value.replace(":", "."): point for point in points}


def resolve(name: str) -> type[BaseExperiment]:
    """Return the experiment class with a name, importing its module if needed.

    Raises:
        ConfigError: no class or several classes have this name, or importing its module fails.
    """
    if name.endswith(".py") or ".py:" in name:
        return _from_file(name)
    found = _matches(name)
    if not found and "." in name:
        imported = _from_module(name)
        if imported is not None:
            return imported
        found = _matches(name)
    if len(found) > 1:
        raise _refusal(name, f"stands for {', '.join(found)}.", "Write a longer part of its name.")
    if not found:
        raise _unknown(name)
    return _class_named(found[0])


def _matches(name: str) -> list[str]:
    """Return the full names that end with `name`; an exact match wins."""
    known = names()
    if name in known:
        return [name]
    plain = _plain(name)
    return [full for full in known if f".{_plain(full)}".endswith(f".{plain}")]


def _plain(name: str) -> str:
    """Normalise Pax spellings: `paxml.tasks.lm.params.c4.X` and `lm.c4.X` are the same."""
    return _OLD.sub("", name).replace(".params.", ".")


def _class_named(full: str) -> type[BaseExperiment]:
    if full not in _registered:
        module, _, cls = full.rpartition(".")
        offered = _offered().get(full)
        found = packages.load(offered) if offered else getattr(import_module(module), cls)
        _registered.setdefault(full, found)
    return _registered[full]


def _from_module(name: str) -> type[BaseExperiment] | None:
    """Import `package.module` of `package.module.Exp` and return the class if it exists, registered or not."""
    module, _, cls = name.rpartition(".")
    if not _exists(module):
        return None
    try:
        found = getattr(import_module(module), cls, None)
    except Exception as error:
        raise _failed(name, module, error) from error
    return found if isinstance(found, type) and issubclass(found, BaseExperiment) else None


def _exists(module: str) -> bool:
    if any(not part.isidentifier() for part in module.split(".")) or module.startswith(("tasks.", "paxml.")):
        return False
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _from_file(name: str) -> type[BaseExperiment]:
    path, _, cls = name.rpartition(":") if ".py:" in name else (name, "", "")
    if not io.islocal(path):
        raise _refusal(name, f"{path} is remote.", "Copy the file (x-io copy), and name the copy: it is executed.")
    file = Path(path)
    if not file.is_file():
        raise _refusal(name, f"there is no file {path}.", "Write path/to/file.py:ClassName.")
    module = _load(file, name)
    own = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, BaseExperiment) and value.__module__ == module.__name__
    }
    if cls in own:
        return own[cls]
    near = nearest(cls, own)
    listed = f"It has {', '.join(own)}." if own else "It has no experiment class."
    raise _refusal(name, f"{path} has no experiment '{cls}'.", f"Did you mean '{path}:{near}'?" if near else listed)


def _load(file: Path, name: str) -> Any:
    """Import a file as a module with a unique name; a second call returns the loaded module."""
    # A hash that is the same in all processes, unlike Python's own: the name is written into files of a job.
    digest = hashlib.sha256(str(file.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    key = f"xdpx_experiment_files.{file.stem}_{digest}"
    if key in sys.modules:
        return sys.modules[key]
    spec = spec_from_file_location(key, file.resolve())
    if spec is None or spec.loader is None:
        raise _refusal(name, f"{file} is not a Python file.", "Write path/to/file.py:ClassName.")
    module = module_from_spec(spec)
    sys.modules[key] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[key]
        raise _failed(name, str(file), error) from error
    return module


def _unknown(name: str) -> ConfigError:
    known = names()
    last = {full.rpartition(".")[2]: full for full in known}
    near = nearest(name.rpartition(".")[2], last)
    remedy = f"Did you mean '{last[near].removeprefix('xdpx.experiments.')}'?" if near else "x-exp --list shows all."
    return _refusal(name, "there is no experiment of this name.", remedy)


def _failed(name: str, what: str, error: Exception) -> ConfigError:
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in {"jax", "flax", "optax"}:
        return _refusal(name, f"{error.name} is not installed.", "Install it with pip install 'xdpx[jax]'.")
    problem = f"importing {what} fails: {type(error).__name__}: {str(error).removesuffix('.')}."
    return _refusal(name, problem, "Correct it; --verbose shows the traceback.")


def _refusal(name: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError("command line", [Fault(f"--exp {name}", problem, remedy)])
