"""Save and restore sharded states: each process writes its shards with Orbax, and the folder is published atomically.

Tensors are stored under plain names (`params/lm/embedding/emb_var`) that do not depend on the classes of the state, so
that a checkpoint can be read onto any mesh, by any number of processes, and in part.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from xdpx.checkpoints import spmd_folders as places
from xdpx.checkpoints.background import Background
from xdpx.checkpoints.folders import ALONE, FolderCommit, Ranks, Staging, agree, attempt
from xdpx.checkpoints.publishing import remove_tree
from xdpx.checkpoints.spmd_folders import FORMAT, METADATA, STATE, folder_name, input_file, read_shapes
from xdpx.config.faults import ConfigError, Fault, nearest
from xdpx.utils import io
from xdpx.utils.owners import temporary_name
from xdpx.utils.paths import StrPath

if TYPE_CHECKING:
    import jax

Subset = Callable[[str], bool] | Collection[str]
"""A choice of tensors: a predicate on the name, or prefixes of names, such as `params` or `params/lm/softmax`."""

_PATTERN = re.compile(r"[*?\[]")
_OS_ERROR = re.compile(r"os_error_code='(\d+)'")
"""How TensorStore, which writes for Orbax, gives the number of an error of the system."""

_background = Background()


def wait() -> None:
    """Wait for the save in the background. Raises its error, once."""
    _background.wait()


def save(
    tree: object,
    parent: StrPath,
    *,
    step: int,
    facts: Mapping[str, Any] | None = None,
    train_input: object = None,
    background: bool = False,
    ranks: Ranks = ALONE,
) -> str:
    """Save a pytree of arrays as `<parent>/checkpoint_<step>`, atomically; call it on all processes.

    When it returns, each array has been copied off its device, and may be donated.

    Args:
        tree: of `jax.Array`, of which each process holds its shards.
        parent: the `checkpoints` folder of a job, local or remote.
        step: number of updates taken.
        facts: JSON values for the metadata.
        train_input: JSON value: the position of this process in its input.
        background: return before everything is written; an error is raised by the next call, or by `wait`.
        ranks: the processes that save together.

    Returns:
        The path of the folder.

    Raises:
        OSError: writing failed; an existing folder is unchanged.
    """
    wait()
    arrays = {name: leaf for name, leaf in named_leaves(tree)}
    text = _metadata(arrays, step, facts or {}, ranks)
    size = sum(array.nbytes for array in arrays.values())
    whole = FolderCommit(parent, folder_name(step), facts={"step": step}, ranks=ranks, needs_bytes=size)
    with _explained(whole.target), ExitStack() as stack:
        staging = stack.enter_context(whole)
        agree(ranks, attempt(lambda: _write_small_files(staging, text, train_input)), whole.target)
        writer, place = _writer(), stack.enter_context(_by_plain_name(io.abspath(staging.path)))
        writer.save(io.join(place, STATE), _arguments().PyTreeSave(_with_content(arrays)))
        rest = stack.pop_all()

    def finish() -> None:
        with _explained(whole.target), rest:
            writer.wait_until_finished()

    if background:
        _background.start(finish)
    else:
        finish()
    return whole.target


@contextmanager
def _explained(target: str) -> Generator[None]:
    """Raise an error of the disk as OSError that says what failed and what to do; Orbax gives them as ValueError."""
    try:
        yield
    except (OSError, ValueError) as error:
        of_orbax = _OS_ERROR.search(str(error))
        number = int(of_orbax[1]) if of_orbax else getattr(error, "errno", None)
        if number is None:
            raise
        problem = f"{target} could not be saved ({getattr(error, 'strerror', None) or os.strerror(number)})"
        advice = "Earlier checkpoints are untouched. Free some space, then run the same command again."
        raise OSError(number, f"{problem}. {advice}") from error


def restore(folder: StrPath, target: object, *, subset: Subset | None = None, ranks: Ranks = ALONE) -> Any:
    """Read a checkpoint onto the devices of `target`, bit for bit; call it on all processes.

    Args:
        folder: a checkpoint folder, local or remote.
        target: a pytree of `jax.ShapeDtypeStruct` with shardings, of any mesh: see `SpmdEngine.target`.
        subset: the tensors to read; other leaves of `target` are returned unchanged.
        ranks: the processes that read together.

    Returns:
        The pytree of arrays.

    Raises:
        DamagedCheckpoint: the checkpoint does not match its hashes.
        ConfigError: tensors are missing, or have other shapes or types; each is named.
    """
    from jax import tree_util

    wait()
    places.verify(folder, ranks=ranks)
    leaves = dict(named_leaves(target))
    wanted = {name: leaf for name, leaf in leaves.items() if _is_in(name, subset)}
    check_shapes(folder, wanted)
    found = leaves | read(folder, wanted)
    return tree_util.tree_unflatten(tree_util.tree_structure(target), [found[name] for name in leaves])


def read(folder: StrPath, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors by name, each with the sharding of its `jax.ShapeDtypeStruct`; nothing is verified."""
    from orbax.checkpoint import ArrayRestoreArgs

    content = _with_content(wanted)
    restoring = {
        name: ArrayRestoreArgs(sharding=leaf.sharding, global_shape=tuple(leaf.shape), dtype=leaf.dtype)
        for name, leaf in content.items()
    }
    found: dict[str, Any] = {}
    if content:
        request = _arguments().PyTreeRestore(item=content, restore_args=restoring, partial_restore=True)
        with _on_this_machine(folder) as local, _by_plain_name(io.abspath(local)) as place:
            found = dict(_reader().restore(io.join(place, STATE), request))
    return found | {name: _without_elements(leaf) for name, leaf in wanted.items() if name not in content}


def check_shapes(folder: StrPath, wanted: Mapping[str, Any]) -> None:
    """Check that a checkpoint has the wanted tensors.

    Raises:
        ConfigError: a fault for each tensor that is missing, or of another shape or type.
    """
    there = read_shapes(folder)
    faults = [fault for name, leaf in wanted.items() if (fault := _misfit(name, leaf, there))]
    if faults:
        raise ConfigError(str(folder), faults)


def named_leaves(tree: object) -> Iterator[tuple[str, Any]]:
    """Yield (name, leaf) of a pytree; the name is the keys on the path to the leaf, joined by `/`."""
    from jax import tree_util

    for path, leaf in tree_util.tree_flatten_with_path(tree)[0]:
        yield tree_util.keystr(path, simple=True, separator="/"), leaf


def _misfit(name: str, leaf: jax.Array, there: Mapping[str, tuple[tuple[int, ...], str]]) -> Fault | None:
    if name not in there:
        near = nearest(name, there)
        return Fault(
            name, f"is not in this checkpoint of {len(there)} tensors.",
            (f"The nearest is '{near}'. " if near else "")
            + "Continue with the model and the learner it was made with, take a subset, or start a new job from its "
            "weights with init_from_checkpoint_rules.",
        )  # fmt: skip
    shape, dtype = there[name]
    if (shape, dtype) == (tuple(leaf.shape), str(leaf.dtype)):
        return None
    return Fault(
        name, f"is {dtype}{list(shape)} in this checkpoint, and {leaf.dtype}{list(leaf.shape)} in this model.",
        "Use the sizes it was made with, or leave this tensor out (ignore_rules of init_from_checkpoint_rules).",
    )  # fmt: skip


def _is_in(name: str, subset: Subset | None) -> bool:
    if subset is None:
        return True
    if callable(subset):
        return bool(subset(name))
    return any(name == part or name.startswith(f"{part.rstrip('/')}/") for part in _texts(subset))


def _texts(subset: Iterable[str]) -> Iterable[str]:
    return (subset,) if isinstance(subset, str) else subset


def _metadata(arrays: Mapping[str, Any], step: int, facts: Mapping[str, Any], ranks: Ranks) -> str:
    tensors = {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()}
    content = {"format": FORMAT, "step": step, "processes": ranks.size, "facts": dict(facts), "tensors": tensors}
    return json.dumps(content, indent=1)


def _write_small_files(staging: Staging, metadata: str, train_input: object) -> None:
    ranks = staging.ranks
    if ranks.rank == 0:
        with staging.open(METADATA, "w") as file:
            file.write(metadata)
    ranks.barrier()
    if not io.isfile(io.join(staging.path, METADATA)):
        raise OSError(
            f"{staging.path}: process {ranks.rank} does not see what process 0 has written there. Processes save "
            "together: give them one job_log_dir that all their machines share."
        )
    if train_input is not None:
        with staging.open(input_file(ranks.rank, ranks.size), "w") as file:
            json.dump(train_input, file)


def _with_content(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays without empty ones, which Orbax cannot store."""
    return {name: array for name, array in arrays.items() if 0 not in array.shape}


def _without_elements(leaf: Any) -> Any:
    import jax
    import numpy as np

    whole = np.zeros(leaf.shape, leaf.dtype)
    return jax.make_array_from_callback(leaf.shape, leaf.sharding, lambda index: whole[index])


@contextmanager
def _on_this_machine(folder: StrPath) -> Generator[str]:
    """Yield a local folder with the tensors of a checkpoint; for a remote one a temporary copy."""
    place = io.plain(folder)
    if io.islocal(place):
        yield place
        return
    copy = temporary_name(io.join(io.cache.spool(), io.name(place)))
    try:
        io.copytree(io.join(place, STATE), io.join(copy, STATE))
        yield copy
    finally:
        remove_tree(copy)


@contextmanager
def _by_plain_name(folder: str) -> Generator[str]:
    """Yield a path of a local folder without `*`, `?` and `[`; a temporary link if its own has some.

    Orbax looks for the shards it has written with a pattern that begins with the path. It finds none in `lr[1e-3]`, and
    completes a checkpoint without its tensors.
    """
    if _PATTERN.search(folder) is None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="xdpx-checkpoint-") as place:
        link = io.join(place, "link")
        io.local_files.symlink(folder, link)
        yield link


@cache
def _writer() -> Any:
    """Return what writes arrays; a single process does not split replicated ones between its devices.

    Orbax splits them so that several hosts share the work. It compiles a program for each shape and device to do so: on
    eight devices, the first save of 20 small matrices took five seconds instead of 0.06.
    """
    import jax
    import orbax.checkpoint as ocp

    kinds, handler = ocp.type_handlers, ocp.PyTreeCheckpointHandler()
    if jax.process_count() == 1:
        with suppress(ImportError):  # of another Orbax: without a store, the kinds of random keys would be lost
            from orbax.checkpoint._src.metadata.array_metadata_store import Store

            whole = kinds.ArrayHandler(use_replica_parallel=False, array_metadata_store=Store())
            all_kinds = {kind: kinds.get_type_handler(kind) for kind in kinds.supported_types()} | {jax.Array: whole}
            registry = kinds.create_type_handler_registry(*all_kinds.items())
            handler = ocp.PyTreeCheckpointHandler(type_handler_registry=registry)
    return ocp.AsyncCheckpointer(handler)


@cache
def _reader() -> Any:
    import orbax.checkpoint as ocp

    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler())


def _arguments() -> Any:
    import orbax.checkpoint as ocp

    return ocp.args
