"""A cache of programs compiled for CPUs, for the processes that JAX's own cache does not serve.

JAX's cache is written only by the first process, and on CPUs its keys differ between processes: all others would
recompile whenever a training is restarted. So they keep theirs beside it, in a folder that is trusted like JAX's.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import jax
from jax.experimental import serialize_executable

from xdpx.engines.spmd import world
from xdpx.logger import log
from xdpx.utils import commit, io
from xdpx.utils.owners import machine_id

ENDING = ".program"


def compiled(lowered: Any) -> Any:
    """Return the program of a lowered function: the one that was kept, else a new one, which is kept from now on."""
    folder = jax.config.values["jax_compilation_cache_dir"]
    if not folder or world.process_index() == 0:
        return lowered.compile()
    path = io.join(folder, f"{_key(lowered)}{ENDING}")
    return _read(path, lowered) or _compile(path, lowered)


def _read(path: str, lowered: Any) -> Any:
    """Return the program that was kept; None where there is none that can be used."""
    if not io.isfile(path):
        return None
    try:
        with io.open(path, "rb") as file:
            data = file.read()
        digest, program = data[:32], data[32:]
        if hashlib.sha256(program).digest() != digest:
            return None
        in_tree = jax.tree.structure(lowered.args_info)
        return serialize_executable.deserialize_and_load(program, in_tree, lowered.out_tree)
    except Exception as error:  # whatever is wrong with it, it can be compiled again
        log.info(f"{path}: a stored program is not used, and is compiled again: {error}")
        return None


def _compile(path: str, lowered: Any) -> Any:
    made = lowered.compile()
    try:
        program = serialize_executable.serialize(made)[0]
        io.makedirs(io.parent(path))
        commit.write_bytes(path, hashlib.sha256(program).digest() + program)
    except (NotImplementedError, ValueError, OSError, jax.errors.JaxRuntimeError) as error:
        log.info(f"{path}: a program is not kept for the next start: {error}")
    return made


def _key(lowered: Any) -> str:
    """Return a hash of everything that affects a program: its code, the process and machine, versions and settings."""
    plain = {
        name: value for name, value in jax.config.values.items()
        if isinstance(value, str | int | float | bool) and not name.endswith("_dir")
    }  # fmt: skip
    told = [
        jax.__version__, machine_id(), os.environ.get("XLA_FLAGS", ""), sorted(plain.items()),
        world.process_index(), [str(device) for device in jax.devices()], lowered.as_text(),
    ]  # fmt: skip
    return hashlib.sha256(repr(told).encode()).hexdigest()
