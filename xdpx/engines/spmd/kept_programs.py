"""A cache of programs compiled for the CPUs of several processes, which JAX's own cache does not serve.

JAX's cache is written only by the first process, and on CPUs its keys differ between processes: all others would
recompile whenever a training is restarted. So each keeps its own beside it, in a folder that is trusted like JAX's.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

from xdpx.engines.spmd import world
from xdpx.logger import log
from xdpx.utils import commit, io
from xdpx.utils.owners import machine_id

ENDING = ".program"


class Kept(NamedTuple):
    """A compiled program, and the bytes from which another start can load it.

    Attributes:
        program: callable with the arguments that its function was lowered for.
        content: None if it cannot be stored.
    """

    program: Any
    content: bytes | None


def compiled(lowered: Any) -> Kept:
    """Return the program of a lowered function: the one that was kept, else a new one, which is kept from now on."""
    folder = jax.config.values["jax_compilation_cache_dir"]
    if not folder:
        return Kept(lowered.compile(), None)
    path = io.join(folder, f"{_key(lowered)}{ENDING}")
    return _read(path, lowered) or _compiled(lowered, path)


def read_verified(path: str) -> bytes | None:
    """Return what `write_verified` wrote into a file; None if it is missing or damaged."""
    if not io.isfile(path):
        return None
    try:
        with io.open(path, "rb") as file:
            data: bytes = file.read()
    except OSError as error:
        log.info(f"{path}: a stored program cannot be read: {error}")
        return None
    digest, content = data[:32], data[32:]
    return content if hashlib.sha256(content).digest() == digest else None


def write_verified(path: str, content: bytes) -> None:
    """Write a file with its hash, atomically. Logs failures."""
    try:
        io.makedirs(io.parent(path))
        commit.write_bytes(path, hashlib.sha256(content).digest() + content)
    except OSError as error:
        log.info(f"{path}: a program is not kept for the next start: {error}")


def _read(path: str, lowered: Any) -> Kept | None:
    """Return the stored program; None if there is none that can be used."""
    content = read_verified(path)
    if content is None:
        return None
    try:
        in_tree = jax.tree.structure(lowered.args_info)
        return Kept(serialize_executable.deserialize_and_load(content, in_tree, lowered.out_tree), content)
    except Exception as error:  # whatever is wrong with it, it can be compiled again
        log.info(f"{path}: a stored program is not used, and is compiled again: {error}")
        return None


def _compiled(lowered: Any, path: str) -> Kept:
    """Compile a function, and keep the program in a file."""
    with _without_jax_cache():
        program = lowered.compile()
    content = _serialized(program)
    if content is not None:
        write_verified(path, content)
    return Kept(program, content)


@contextmanager
def _without_jax_cache() -> Generator[None]:
    """Compile anew inside the block: a program of JAX's cache has lost its machine code, and cannot be stored again.

    Stored nevertheless, it would load, and fail when it is called.
    """
    folder = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update("jax_compilation_cache_dir", folder)
        compilation_cache.reset_cache()


def _serialized(program: Any) -> bytes | None:
    """Return a program as bytes; None if it calls Python back, as `jax.debug.print` does: that is of this process."""
    try:
        content: bytes = serialize_executable.serialize(program)[0]
    except Exception as error:  # JAX pickles, which raises errors of many classes
        log.info(f"a program is not kept for the next start: {error}")
        return None
    return content


def _key(lowered: Any) -> str:
    """Return a hash of everything that affects a program."""
    return hashlib.sha256(repr([*surroundings(), lowered.as_text()]).encode()).hexdigest()


def surroundings() -> list[Any]:
    """Return what affects every program, beside its code: the process and machine, versions and settings."""
    plain = {
        name: value for name, value in jax.config.values.items()
        if isinstance(value, str | int | float | bool) and not name.endswith("_dir")
    }  # fmt: skip
    return [
        jax.__version__, machine_id(), os.environ.get("XLA_FLAGS", ""), sorted(plain.items()),
        world.process_index(), [str(device) for device in jax.devices()],
    ]  # fmt: skip
