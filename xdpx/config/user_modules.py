"""A user's own code: every `user/modules/*.py` under the working directory is imported before anything is checked."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from xdpx.config.faults import ConfigError, Fault, Origin

PATH_VARIABLE = "XDPX_USER_MODULES"
"""Names another folder than `user/modules`, or several with `:` between (`;` on Windows)."""

DEFAULT_FOLDER = "user/modules"
_PACKAGE = "xdpx_user_modules"


def folders() -> list[Path]:
    """Give the folders to look in. One that is named by the variable must exist.

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
        ConfigError: a module fails; the message names its file and line.
    """
    imported = []
    for folder in folders():
        place = str(folder.resolve())
        if place not in sys.path:
            sys.path.append(place)  # at the end: a user's `random.py` must not hide the library's
        for file in sorted(folder.glob("*.py")):
            if not file.name.startswith("_") and _name(file) not in sys.modules:
                _import(file)
                imported.append(file.name)
    return imported


def named(path: str) -> Any:
    """Give what `module:name` means; a module may be one of the user's own, or any other that can be imported.

    Raises:
        ValueError: there is no such thing; the message says what is missing.
    """
    module, colon, name = path.partition(":")
    if not (colon and module and name):
        raise ValueError(f"'{path}' does not have the form module:name.")
    try:
        found = sys.modules.get(f"{_PACKAGE}.{module}") or import_module(module)
    except Exception as error:  # whatever a module does when it is imported
        raise ValueError(f"{module} cannot be imported ({type(error).__name__}: {error}).") from error
    if not hasattr(found, name):
        raise ValueError(f"{module} has no '{name}'.")
    return getattr(found, name)


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
    """Give the line of `file` where the error came from, 0 when unknown."""
    if isinstance(error, SyntaxError) and error.lineno and error.filename and Path(error.filename).name == file.name:
        return error.lineno
    mine = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file.resolve())]
    return mine[-1] or 0 if mine else 0
