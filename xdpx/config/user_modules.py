"""Users' own code: every `user/modules/*.py` in the working directory is imported.

This is logged, because it executes the files. Modules that belong to another user of the machine are refused.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing import parent_process
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from xdpx.config import packages
from xdpx.config.faults import ConfigError, Fault, Origin
from xdpx.logger import log
from xdpx.utils import io

PATH_VARIABLE = "XDPX_USER_MODULES"
"""Environment variable with other folders than `user/modules`, separated by `:` (`;` on Windows)."""

DEFAULT_FOLDER = "user/modules"
_PACKAGE = "xdpx_user_modules"


def folders() -> list[Path]:
    """Return the folders of users' modules: those in the environment variable, else `user/modules` if it exists.

    Raises:
        ConfigError: a folder in the variable does not exist, or is remote.
    """
    given = os.environ.get(PATH_VARIABLE, "")
    if "://" in given:
        remedy = "Copy the folder here (x-io copytree), and name the copy: its files are executed."
        raise ConfigError(PATH_VARIABLE, [Fault(given, "is remote.", remedy)])
    named = [Path(text) for text in given.split(os.pathsep) if text]
    for folder in named:
        if not folder.is_dir():
            raise ConfigError(PATH_VARIABLE, [Fault(str(folder), "is not a folder.", "Correct the variable.")])
    default = Path(DEFAULT_FOLDER)
    return named or ([default] if default.is_dir() else [])


def load_user_modules() -> list[str]:
    """Import all modules of the user in the order of file names, except those that begin with `_` or `.`.

    Returns:
        The names of the files imported by this call; modules are imported only once.

    Raises:
        ConfigError: a module fails (the message has file and line), or it belongs to another user.
    """
    imported = []
    for folder in folders():
        files = [file for file in sorted(folder.glob("*.py")) if not file.name.startswith(("_", "."))]
        new = [file for file in files if _name(file) not in sys.modules]
        for file in set(files) - set(new):
            _refuse_another(file)
        if not new:
            continue
        _refuse_strangers(folder)
        place = str(folder.resolve())
        if place not in sys.path:
            sys.path.append(place)  # at the end: a user's `random.py` must not hide the library's
        if parent_process() is None:
            log.info(f"using your own code: {', '.join(file.name for file in new)} of {folder}")
        _package_of(folder)
        _OtherName.install()
        for file in new:
            if _name(file) not in sys.modules:  # else another one of them has imported it
                _import(file)
            _note(file)
        imported += [file.name for file in new]
    return imported


_noted: dict[str, tuple[str, bytes]] = {}
"""What was imported: {name of the module: (file, its content)}."""


def _content(file: Path) -> bytes:
    with io.open(str(file), "rb") as source:
        return bytes(source.read())


def _note(file: Path) -> None:
    """Remember what was imported."""
    _noted[_name(file)] = str(file.resolve()), _content(file)


def _refuse_another(file: Path) -> None:
    """Raise ConfigError if a file has the name of another module that was imported; warn if it has changed since."""
    place, content = _noted.get(_name(file), ("", b""))
    if not place or content == _content(file):
        return
    if place != str(file.resolve()):
        problem = f"has the name of {place}, which is already imported, so it would be ignored."
        raise ConfigError(str(file), [Fault("user module", problem, "Rename one of them, or restart Python.")])
    log.warning(f"{file} has changed since it was imported: this process uses the old version. Restart Python.")


def used() -> list[str]:
    """Return the names of the user's modules that are imported."""
    return sorted(name.partition(".")[2] for name in sys.modules if name.startswith(f"{_PACKAGE}."))


def files() -> set[str]:
    """Return the absolute paths of the user's modules that are imported."""
    return {place for place, _ in _noted.values()}


def _refuse_strangers(folder: Path) -> None:
    """Raise ConfigError if the default folder, or a module in it, belongs to another user except root."""
    if os.environ.get(PATH_VARIABLE) or not hasattr(os, "geteuid"):
        return
    trusted = {0, os.geteuid(), *map(int, filter(str.isdecimal, [os.environ.get("SUDO_UID", "")]))}
    for place in (folder, *sorted(folder.rglob("*.py"))):
        if place.stat().st_uid not in trusted:
            problem = f"belongs to user {place.stat().st_uid}, not to you, and would be run."
            remedy = f"If you trust it: export {PATH_VARIABLE}={folder}. Otherwise work in a folder of your own."
            raise ConfigError(str(folder), [Fault(str(place), problem, remedy)])


def named(path: str) -> Any:
    """Return the object `module:name` from a user's module, from xdpx, or a callback that an installed package offers.

    Nothing else is imported, because a config may come from someone else, and importing a module runs it.

    Raises:
        ValueError: the module is not one of these, its import fails, or it lacks the name.
    """
    module, colon, name = path.partition(":")
    if not (colon and module and name):
        raise ValueError(f"'{path}' does not have the form module:name.")
    found = sys.modules.get(f"{_PACKAGE}.{module}")
    if found is None and module.partition(".")[0] != "xdpx" and path not in _offered():
        offered = f", nor among those that packages offer ({', '.join(_offered())})" if list(_offered()) else ""
        raise ValueError(f"{module} is not one of your modules in {DEFAULT_FOLDER}{offered}.")
    try:
        found = found or import_module(module)
    except Exception as error:  # an import may raise anything
        raise ValueError(f"{module} cannot be imported ({type(error).__name__}: {error}).") from error
    if not hasattr(found, name):
        raise ValueError(f"{module} has no '{name}'.")
    return getattr(found, name)


def _offered() -> Iterator[str]:
    """Yield the `module:name` of each callback that an installed package offers."""
    return (point.value for points in packages.offered("callback").values() for point in points)


def _package_of(folder: Path) -> None:
    """Add a folder to the package in which users' modules import one another as `from .other import name`."""
    package = sys.modules.setdefault(_PACKAGE, ModuleType(_PACKAGE))
    places = list(getattr(package, "__path__", ()))
    package.__path__ = list(dict.fromkeys([*places, str(folder.resolve())]))


class _OtherName(MetaPathFinder, Loader):
    """Lets `import mine` and `from .mine import name` find one module, not two copies, whichever comes first."""

    @classmethod
    def install(cls) -> None:
        """Put this finder before that of `sys.path`, and after those of built-in and frozen modules; once."""
        if not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.insert(sys.meta_path.index(PathFinder), cls())

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return a spec if the file is already imported, or being imported, under its other name; otherwise None."""
        del target
        twin = _other_name(fullname)
        if twin not in sys.modules:
            return None
        found = PathFinder.find_spec(fullname, path)
        if found is None or found.origin != sys.modules[twin].__file__:
            return None
        return ModuleSpec(fullname, self, origin=found.origin, loader_state=sys.modules[twin].__spec__)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that exists under the other name."""
        return sys.modules[_other_name(spec.name)]

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec under which the module was first imported; its code is not run again."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def _other_name(name: str) -> str:
    """Return the name of a user's module within the package for its plain one, and the reverse."""
    prefix = f"{_PACKAGE}."
    return name.removeprefix(prefix) if name.startswith(prefix) else f"{prefix}{name}"


def _name(file: Path) -> str:
    return f"{_PACKAGE}.{file.stem}"


def _import(file: Path) -> None:
    spec = spec_from_file_location(_name(file), file.resolve())
    if spec is None or spec.loader is None:
        raise ConfigError(str(file), [Fault("file", "is not a Python module.", "Move it away.")])
    plain = sys.modules.get(file.stem)
    if plain is not None and getattr(plain, "__file__", None) == str(file.resolve()):
        sys.modules[spec.name] = plain  # another module of the user has imported it by its plain name
        return
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    here = Path.cwd()
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a sys.exit would end the command, with a code that says all is well
        del sys.modules[spec.name]
        problem = f"{type(error).__name__}: {error}".rstrip(".") + "."
        remedy = "Correct your module, or move it away; --verbose shows the traceback."
        raise ConfigError(
            str(file), [Fault("user module", problem, remedy, Origin(str(file), _line(error, file)))]
        ) from error
    finally:
        if Path.cwd() != here:
            os.chdir(here)
            log.warning(
                f"{file} changes the working directory, which is restored: paths of a config are relative to where the "
                "command was started. Name your own files as Path(__file__).parent / 'words.txt'."
            )


def _line(error: BaseException, file: Path) -> int:
    """Return the line of `file` that caused the error, 0 if unknown."""
    if isinstance(error, SyntaxError) and error.lineno and error.filename and Path(error.filename).name == file.name:
        return error.lineno
    mine = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file.resolve())]
    return mine[-1] or 0 if mine else 0
