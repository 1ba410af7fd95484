"""Find where two runs diverge: the first logged step and the first checkpoint, with its tensors, that differ.

Usage: x-script first_difference LEFT RIGHT

  LEFT, RIGHT   two runs of the same kind: folders of x-train, of a Trainer, or of x-exp

The parameters in which they differ come first. Values are compared bit for bit, except times and memory in the logs.
Exit code 1 if something differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.config.faults import ConfigError, Fault, shortened
from xdpx.utils import io

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from xdpx.reports.run_logs import Columns

NAME = "first_difference"
USAGE = "x-script first_difference LEFT RIGHT"
MODEL_PARAMS = "model_params.txt"
"""In which x-exp writes every value of an experiment, one per line."""
MOST_SHOWN = 10
NOT_COMPARED = re.compile(r"step|epoch|wps|ups|mfu|.*(second|time|memory|per_|wall|speed).*")
"""Columns of the position in training or the speed of the machine, which are not results of the computation."""

Values = dict[str, Any]
"""The content of a checkpoint by path: arrays, and plain values."""


def main(argv: Sequence[str]) -> int:
    """Print the parameters that differ and where the runs diverge, or that they do not."""
    arguments = read_arguments(NAME, argv)
    need_paths(NAME, arguments, USAGE, exactly=2)
    left, right = arguments.paths
    for folder in (left, right):
        if not io.isdir(folder):
            raise ConfigError(f"x-script {NAME}", [Fault(folder, "no such folder.", "Name the folder of a run.")])
    compared = {"logs": [*_logs(left, right)], "checkpoints": [*_checkpoints(left, right)]}
    found = [*compared["logs"], *compared["checkpoints"]]
    if not found:
        raise ConfigError(f"x-script {NAME}", [_nothing_in_common(left, right)])
    for line in _parameters(left, right):
        print(line)
    for line, _ in found:
        print(line)
    for name in (name for name, lines in compared.items() if not lines):
        print(f"{name}: no step is in both runs, so nothing was compared")
    return 1 if any(differs for _, differs in found) else 0


def _nothing_in_common(left: str, right: str) -> Fault:
    """Return the fault for two folders without a common logged step or checkpoint."""
    steps = {folder: ", ".join(map(str, sorted(checkpoints_of(folder)))) for folder in (left, right)}
    held = {folder: f"checkpoints of steps {found}" if found else "no checkpoints" for folder, found in steps.items()}
    has = " and ".join(f"{folder} has {what}" for folder, what in held.items())
    problem = f"the runs share no logged step and no checkpoint: {has}."
    return Fault("LEFT, RIGHT", problem, "Compare two runs of the same kind that logged or saved at the same steps.")


def _parameters(left: str, right: str) -> Iterator[str]:
    from xdpx.config.args_file import differences

    settings = [settings_of(folder) for folder in (left, right)]
    if not all(settings):
        yield "parameters: not recorded by both runs, so not compared"
        return
    lines = differences(*settings)
    yield f"parameters: {len(lines) or 'none'} differ"
    yield from (f"  {line}" for line in lines)


def settings_of(folder: str) -> dict[str, Any]:
    """Return the parameters that a run of any kind wrote down; {} if there are none.

    Raises:
        ConfigError: the file with them cannot be read.
    """
    from xdpx.board.finding import RunFolder, listing
    from xdpx.checkpoints.parts import ARGUMENTS_TEXT
    from xdpx.config.args_file import newest_args
    from xdpx.config.stored_args import read_args

    run = RunFolder(folder, listing(folder))
    if run.door == "x-train":
        path = newest_args(folder)
        return read_args(path) if path else {}
    path = io.join(folder, *([MODEL_PARAMS] if run.door == "x-exp" else [run.newest_checkpoint, ARGUMENTS_TEXT]))
    if not io.isfile(path):
        return {}
    with io.open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if run.door == "x-exp":
        return {name: value for name, sign, value in (line.partition(" : ") for line in text.splitlines()) if sign}
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        problem = f"cannot be read: {error}."
        raise ConfigError(f"x-script {NAME}", [Fault(path, problem, "Remove it to compare the rest.")]) from error


def _logs(left: str, right: str) -> Iterator[tuple[str, bool]]:
    """Yield (line, whether it reports a difference) about the first row in which each log differs."""
    ours, theirs = _tables(left), _tables(right)
    for name, columns in ours.items():
        yield from _rows(name, columns, theirs[name])


def _tables(folder: str) -> dict[str, Columns]:
    """Return the columns of the training and the evaluation log of a run of any kind."""
    from xdpx.board.finding import RunFolder, listing
    from xdpx.board.logs import has_tables, history, history_file
    from xdpx.reports.run_logs import read_run

    found = RunFolder(folder, listing(folder))
    if not has_tables(found):
        path = history_file(found)
        entry = io.store(path).entry(path) if path else None
        return history(path, entry) if entry else {"train": {}, "valid": {}}
    logs = read_run(folder)
    return {"train": dict(logs.train.columns), "valid": dict(logs.valid.columns)}


def _rows(name: str, left: Columns, right: Columns) -> Iterator[tuple[str, bool]]:
    import numpy as np

    empty = np.empty(0)
    steps, in_left, in_right = np.intersect1d(left.get("step", empty), right.get("step", empty), return_indices=True)
    if not len(steps):
        return
    columns = [column for column in left if column in right and not NOT_COMPARED.fullmatch(column)]
    apart = {column: ~_same(left[column][in_left], right[column][in_right]) for column in columns}
    differing = np.flatnonzero(np.any(list(apart.values()), axis=0))
    if not len(differing):
        yield f"{name}: {len(steps)} logged steps, {len(columns)} columns, none differs", False
        return
    first = int(differing[0])
    before = f"; the same until step {steps[first - 1]:.0f}" if first else "; there is no earlier one"
    yield f"{name}: the first difference is at step {steps[first]:.0f}{before}", True
    for column in (column for column in columns if apart[column][first]):
        here, there = float(left[column][in_left][first]), float(right[column][in_right][first])
        yield f"  {column}: {here!r} -> {there!r} (a difference of {abs(here - there):.2g})", True


def _same(left: NDArray[np.generic], right: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return for each element whether its bits are equal; any NaN equals any NaN."""
    import numpy as np

    same: NDArray[np.bool_] = left == right
    if np.issubdtype(left.dtype, np.inexact):
        same = (same & (np.signbit(left) == np.signbit(right))) | (np.isnan(left) & np.isnan(right))
    return same


def _checkpoints(left: str, right: str) -> Iterator[tuple[str, bool]]:
    """Yield (line, whether it reports a difference) about the first checkpoint of both runs that differs."""
    ours, theirs = (checkpoints_of(folder) for folder in (left, right))
    steps = sorted(set(ours) & set(theirs))
    for index, step in enumerate(steps):
        lines = list(_values(ours[step], theirs[step]))
        if lines:
            before = f"; the same at {', '.join(map(str, steps[:index]))}" if index else "; there is no earlier one"
            yield f"checkpoints: the first that differs is that of step {step}{before}", True
            yield from ((f"  {line}", True) for line in lines[:MOST_SHOWN])
            if len(lines) > MOST_SHOWN:
                yield f"  and {len(lines) - MOST_SHOWN} more", True
            return
    if steps:
        which = f"those of steps {', '.join(map(str, steps))} are" if len(steps) > 1 else f"that of step {steps[0]} is"
        yield f"checkpoints: {which} bit-identical", False


def checkpoints_of(folder: str) -> dict[int, list[str]]:
    """Return {step: files or folders with its values} of a run of any kind."""
    from xdpx.checkpoints import folders, layout, spmd_folders

    found: dict[int, list[str]] = {}
    for name in sorted(io.listdir(folder)):
        for suffix in (layout.WEIGHTS, layout.STATE):
            step = layout.step_of(name, suffix)
            if step is not None:
                found.setdefault(step, []).append(io.join(folder, name))
        step = folders.step_of(name)
        if step is not None and io.isdir(io.join(folder, name)):
            inside = sorted(io.listdir(io.join(folder, name)))
            files = [file for file in inside if file.endswith((".safetensors", ".pt", ".bin"))]
            found[step] = [io.join(folder, name, file) for file in files]
    below = io.join(folder, "checkpoints")
    for step in spmd_folders.steps(below) if io.isdir(below) else ():
        found[step] = [io.join(below, spmd_folders.folder_name(step))]
    return found


def _values(left: Sequence[str], right: Sequence[str]) -> Iterator[str]:
    """Yield one line for each value that differs between two checkpoints, in the order in which they are stored."""
    ours, theirs = read_values(left), read_values(right)
    for name, value in ours.items():
        if name not in theirs:
            yield f"{name}: only in the first"
        else:
            yield from _value(name, value, theirs[name])
    yield from (f"{name}: only in the second" for name in theirs if name not in ours)


def _value(name: str, left: object, right: object) -> Iterator[str]:
    import numpy as np

    if not (isinstance(left, np.ndarray) and isinstance(right, np.ndarray)):
        if isinstance(left, np.ndarray) or isinstance(right, np.ndarray) or repr(left) != repr(right):
            yield f"{name}: {shortened(repr(left))} -> {shortened(repr(right))}"
        return
    if left.shape != right.shape or left.dtype != right.dtype:
        yield f"{name}: {left.dtype} {left.shape} -> {right.dtype} {right.shape}"
        return
    apart = ~_same(left, right)
    if apart.any():
        place = tuple(int(index) for index in np.argwhere(apart)[0])
        largest = np.nanmax(np.abs(left.astype(np.float64) - right.astype(np.float64))[apart])
        yield (
            f"{name} {left.dtype} {left.shape}: {int(apart.sum()):,} of {left.size:,} elements, by up to "
            f"{largest:.2g}, the first at {list(place)}: {left[place]!s} -> {right[place]!s}"
        )


def read_values(places: Sequence[str]) -> Values:
    """Return all arrays and plain values of a checkpoint, by file name and path of keys."""
    from xdpx.checkpoints import trusted

    found: Values = {}
    for place in places:
        if io.isdir(place):
            found |= _spmd_values(place)
        elif place.endswith(".safetensors"):
            found |= _flat(trusted.load_safetensors(place), "weights")
        else:
            name = io.name(place)
            found |= _flat(trusted.load_tensors(place, arrays=True), name)
    return found


def _spmd_values(folder: str) -> Values:
    import jax
    import numpy as np

    from xdpx.checkpoints import spmd_files, spmd_folders

    device = jax.sharding.SingleDeviceSharding(jax.local_devices(backend="cpu")[0])
    wanted = {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=device)
        for name, (shape, dtype) in spmd_folders.read_shapes(folder).items()
    }
    return {name: np.asarray(value) for name, value in spmd_files.read(folder, wanted).items()}


def _flat(value: object, path: str) -> Values:
    """Return the leaves of nested dicts and lists by path of keys; bfloat16 as float32."""
    import torch

    if isinstance(value, torch.Tensor):
        exact = value.float() if value.dtype is torch.bfloat16 else value
        return {path: exact.detach().cpu().numpy()}
    if isinstance(value, Mapping):
        inside = value.items()
    elif isinstance(value, list | tuple) and any(isinstance(item, torch.Tensor | Mapping | list) for item in value):
        inside = dict(enumerate(value)).items()
    else:
        return {path: value}
    return {name: leaf for key, item in inside for name, leaf in _flat(item, f"{path}/{key}").items()}
