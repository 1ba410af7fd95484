"""Compiled programs that the starts of one launch share, so that restarted processes trace nothing.

JAX's cache saves a restart the compilation, but to look a program up, its function must be traced: seconds of Python
for a large model. Here programs are looked up by what their functions follow from. MaxText's `compiled_trainstep_file`
serves the same purpose, but is written and named by hand.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import jax
from jax.experimental import serialize_executable

from xdpx.engines.spmd import kept_programs
from xdpx.logger import log
from xdpx.utils import io
from xdpx.utils.distributed_utils import LAUNCH

ENDING = ".untraced"
_LEAF: Any = jax.tree.structure(0)


@dataclass(frozen=True)
class LaunchPrograms:
    """Stores and finds the programs of one engine; does nothing outside of a launch that restarts its processes.

    A program is used again only by a restart of the launch that stored it, and only if no imported file has changed on
    disk since then: a user may edit code while it trains.

    Attributes:
        identity: text from which the traced functions follow, apart from code, versions and settings of JAX: all fields
            of the task. "" stores nothing.
        noted: what tracing a function records; stored and restored with its program.
    """

    identity: str
    noted: dict[str, int] = field(default_factory=dict)

    def read(self, name: str, args: tuple[Any, ...]) -> Any | None:
        """Return the stored program of a function for such arguments; None if there is none that may be used."""
        path = self._path(name, args)
        content = kept_programs.read_verified(path) if path else None
        if content is None:
            return None
        head, _, program = content.partition(b"\n")
        told = json.loads(head)
        if told["launch"] != os.environ[LAUNCH]:
            return None
        if any(_stamp(file) != tuple(stamp) for file, stamp in told["files"].items()):
            return None
        in_tree, out_tree = jax.tree.structure((args, {})), jax.tree.structure(_rebuilt(told["result"], args))
        try:
            found = serialize_executable.deserialize_and_load(program, in_tree, out_tree)
        except Exception as error:  # whatever is wrong with it, the function can be traced again
            log.info(f"{path}: a stored program is not used, and is traced again: {error}")
            return None
        self.noted.update(told["noted"])
        return found

    def write(self, name: str, args: tuple[Any, ...], out_tree: Any, content: bytes) -> None:
        """Store the program of a function for the next start. Logs failures.

        Args:
            name: of the function.
            args: its arguments.
            out_tree: the structure of its result.
            content: the program, from `kept_programs.compiled`.
        """
        path = self._path(name, args)
        if not path:
            return
        try:
            result = _outline(jax.tree.unflatten(out_tree, [0] * out_tree.num_leaves), args)
        except ValueError as error:
            log.info(f"{name}: a restart traces it again, because {error}")
            return
        told = {"launch": os.environ[LAUNCH], "files": _imported_files(), "noted": self.noted, "result": result}
        kept_programs.write_verified(path, json.dumps(told).encode() + b"\n" + content)

    def _path(self, name: str, args: tuple[Any, ...]) -> str:
        """Return the path of a function's program, the same in each start; "" if it is not to be stored."""
        folder = jax.config.values["jax_compilation_cache_dir"]
        if not (folder and self.identity and os.environ.get(LAUNCH)):
            return ""
        told = [self.identity, name, kept_programs.surroundings(), _shapes(args)]
        return io.join(folder, f"{hashlib.sha256(repr(told).encode()).hexdigest()}{ENDING}")


def _shapes(args: tuple[Any, ...]) -> list[Any]:
    leaves, tree = jax.tree.flatten(args)
    return [str(tree), [(leaf.shape, str(leaf.dtype), repr(getattr(leaf, "sharding", None))) for leaf in leaves]]


def _outline(result: Any, args: tuple[Any, ...]) -> Any:
    """Return the structure of a result as JSON values: dicts and tuples of leaves and of what is like an argument.

    Raises:
        ValueError: it has other parts.
    """
    tree: Any = jax.tree.structure(result)
    for index, arg in enumerate(args):
        if jax.tree.structure(arg) == tree:
            return index
    if type(result) is dict and all(isinstance(name, str) for name in result):
        return {name: _outline(part, args) for name, part in result.items()}
    if type(result) is tuple:
        return [_outline(part, args) for part in result]
    if tree == _LEAF:
        return "leaf"
    raise ValueError(f"its result has a part of class {type(result).__name__}.")


def _rebuilt(outline: Any, args: tuple[Any, ...]) -> Any:
    """Return a tree with the structure that `_outline` described."""
    if isinstance(outline, int):
        return args[outline]
    if isinstance(outline, dict):
        return {name: _rebuilt(part, args) for name, part in outline.items()}
    return tuple(_rebuilt(part, args) for part in outline) if isinstance(outline, list) else 0


def _imported_files() -> Mapping[str, tuple[int, int]]:
    """Return the stamps of the files of all imported modules, by path."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    paths = {vars(module).get("__file__") for module in modules}
    return {path: _stamp(path) for path in paths if path}


def _stamp(path: str) -> tuple[int, int]:
    """Return (nanoseconds of the last change, size) of a local file; zeros if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
