"""A user's own code: every `user/modules/*.py` under the working directory is imported where a run needs it.

What lies in a folder is run, so this is said in a line; and where somebody else may have put it, nothing is run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing import parent_process
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from xdpx.config import packages
from xdpx.config.faults import ConfigError, Fault, Origin
from xdpx.logger import log

PATH_VARIABLE = "XDPX_USER_MODULES"
"""Names another folder than `user/modules`, or several with `:` between (`;` on Windows)."""

DEFAULT_FOLDER = "user/modules"
_PACKAGE = "xdpx_user_modules"


def folders() -> list[Path]:
    """Return the folders to look in. One that is named by the variable must exist.

    Raises:
        ConfigError: a named folder does not exist.
    """
    named = [Path(text) for text in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if text]
    for folder in named:
        if not folder.is_dir():
            raise ConfigError(PATH_VARIABLE, [Fault(str(folder), "is not a folder.", "Correct the variable.")])
    default = Path(DEFAULT_FOLDER)
    return named or ([default] if default.is_dir() else [])


def load_user_modules() -> list[str]:
    """Import every module of the user, by file name; those that begin with `_` are left to the others to import.

    Gives the names of what was imported now; a second call imports nothing again.

    Raises:
        ConfigError: a module fails, the message names its file and line; or it belongs to somebody else.
    """
    imported = []
    for folder in folders():
        files = [file for file in sorted(folder.glob("*.py")) if not file.name.startswith("_")]
        new = [file for file in files if _name(file) not in sys.modules]
        if not new:
            continue
        _refuse_strangers(folder)
        place = str(folder.resolve())
        if place not in sys.path:
            sys.path.append(place)  # at the end: a user's `random.py` must not hide the library's
        if parent_process() is None:
            log.info(f"your own code is used: {', '.join(file.name for file in new)} of {folder}")
        for file in new:
            _import(file)
        imported += [file.name for file in new]
    return imported


def _refuse_strangers(folder: Path) -> None:
    """Raise ConfigError when a folder that nobody named, or a module in it, belongs to another user (but root)."""
    if os.environ.get(PATH_VARIABLE) or not hasattr(os, "geteuid"):
        return
    trusted = {0, os.geteuid(), *map(int, filter(str.isdecimal, [os.environ.get("SUDO_UID", "")]))}
    for place in (folder, *sorted(folder.rglob("*.py"))):
        if place.stat().st_uid not in trusted:
            problem = f"belongs to user {place.stat().st_uid}, not to you, and would be run."
            remedy = f"If you trust it: export {PATH_VARIABLE}={folder}. Else work in a folder of your own."
            raise ConfigError(str(folder), [Fault(str(place), problem, remedy)])


def named(path: str) -> Any:
    """Return what `module:name` means: of a module of the user's own, of xdpx, or of a package that offers callbacks.

    Nothing else is imported: a config may come from somebody else, and importing a module runs it.

    Raises:
        ValueError: there is no such thing; the message says what is missing.
    """
    module, colon, name = path.partition(":")
    if not (colon and module and name):
        raise ValueError(f"'{path}' does not have the form module:name.")
    found = sys.modules.get(f"{_PACKAGE}.{module}")
    if found is None and module.partition(".")[0] != "xdpx" and path not in _offered():
        offered = f", nor among those that packages offer ({', '.join(_offered())})" if list(_offered()) else ""
        raise ValueError(f"{module} is none of your modules in {DEFAULT_FOLDER}{offered}.")
    try:
        found = found or import_module(module)
    except Exception as error:  # whatever a module does when it is imported
        raise ValueError(f"{module} cannot be imported ({type(error).__name__}: {error}).") from error
    if not hasattr(found, name):
        raise ValueError(f"{module} has no '{name}'.")
    return getattr(found, name)


def _offered() -> Iterator[str]:
    """Return the `module:name` of each callback that an installed package offers."""
    return (point.value for points in packages.offered("callback").values() for point in points)


def _name(file: Path) -> str:
    return f"{_PACKAGE}.{file.stem}"


def _import(file: Path) -> None:
    spec = spec_from_file_location(_name(file), file.resolve())
    if spec is None or spec.loader is None:
        raise ConfigError(str(file), [Fault("file", "is not a Python module.", "Move it away.")])
    sys.modules.setdefault(_PACKAGE, ModuleType(_PACKAGE))
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        problem = f"{type(error).__name__}: {error}."
        remedy = "Correct your module, or move it away; --verbose shows the traceback."
        raise ConfigError(
            str(file), [Fault("user module", problem, remedy, Origin(str(file), _line(error, file)))]
        ) from error


def _line(error: Exception, file: Path) -> int:
    """Return the line of `file` where the error came from, 0 when unknown."""
    if isinstance(error, SyntaxError) and error.lineno and error.filename and Path(error.filename).name == file.name:
        return error.lineno
    mine = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file.resolve())]
    return mine[-1] or 0 if mine else 0
