"""The commands as Python functions: `train`, `tune`, and `preprocess` for x-prepro; more are in `inference.session`."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, takewhile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from xdpx.commands import batch
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.hints import shown
from xdpx.config.loading import Run, fingerprint, load
from xdpx.config.user_modules import load_user_modules
from xdpx.inference.session import TrainedRun, opened
from xdpx.training.preemption import EXIT_CODE
from xdpx.training.status import read_status
from xdpx.utils import io
from xdpx.utils.commit import write_text

if TYPE_CHECKING:
    from xdpx.search.spaces import Dimension, Space

Config = str | os.PathLike[str] | Mapping[str, Any]

# ---- commands


def train(config: Config, **overrides: Any) -> TrainedRun:
    """Train as x-train does, with the same checks, files and log, and return the run.

    Args:
        config: a path, the name of a family, or a dict of values, which may contain `__parent__`.
        **overrides: values of keys that override the config: `learning_rate=1e-3`.

    Raises:
        ConfigError: with every fault of the config, before anything is written.
        KeyboardInterrupt: interrupted, after saving; the same call resumes if the config says resume: auto.
        SystemExit: interrupted by a signal other than Ctrl-C; the code is 85.
    """
    with _done("x-train", config, overrides) as run:
        return opened({"save_dir": _where(run)})


def preprocess(config: Config, **overrides: Any) -> str:
    """Preprocess raw files as x-prepro does, with the same checks, files and log, and return the data_dir.

    Args:
        config: a path, the name of a family, or a dict of values, which may contain `__parent__`.
        **overrides: values of keys that override the config: `max_len=64`.

    Raises:
        ConfigError: with every fault of the config, before anything is written, or with faults of the files.
    """
    with _done("x-prepro", config, overrides) as run:
        return str(run.values["data_dir"])


@dataclass(frozen=True)
class Tuned:
    """The result of a search by `tune`.

    Attributes:
        save_dir: the folder of the search.
        values: the best value of each parameter.
        score: the best score of the major metric.
        trial: the number of the best trial.
        config: path of a config of x-train with the best values.
    """

    save_dir: str
    values: dict[str, Any]
    score: float
    trial: int
    config: str

    @property
    def run_dir(self) -> str:
        """The folder of the best trial, for `load_run`; if a trial has several runs, the folder above them."""
        return io.join(self.save_dir, f"trial_{self.trial}")


def tune(config: Config, *, space: Config | Space | Sequence[Dimension] | None = None, **overrides: Any) -> Tuned:
    """Search as x-tune does, with the same checks, files and log, and return the result.

    Args:
        config: a path, or a dict of values, whose `base_config` may be a dict, too.
        space: the search space: a dict, a path, or a Space or dimensions of `xdpx.search.spaces`; None for that of
            space_config.
        **overrides: values of keys that override the config: `max_trials=32`.

    Raises:
        ConfigError: with every fault of the configs, before anything is written; or if no trial could be trained.
        KeyboardInterrupt: interrupted, after saving; the same call resumes.
        SystemExit: interrupted by a signal other than Ctrl-C; the code is 85.
    """
    with TemporaryDirectory() as folder:
        parts = {"base_config": config.get("base_config")} if isinstance(config, Mapping) else {}
        parts |= {"base_config": overrides["base_config"]} if "base_config" in overrides else {}
        parts["space_config"] = _space_of(space)
        for key, part in parts.items():
            if isinstance(part, Mapping):
                overrides[key] = io.join(folder, f"{key}.json")
                write_text(overrides[key], _as_text(key, _placed(part)))
            elif part is not None:
                overrides[key] = part
        if isinstance(config, Mapping):
            config = {key: value for key, value in config.items() if key not in overrides}
        with _done("x-tune", config, overrides) as run:
            found = batch.stored_status(run)
            save_dir = str(run.values["save_dir"])
            best = io.join(save_dir, "best.hjson")
            return Tuned(save_dir, found["best_values"], found["best_score"], found["best_trial"], best)


def _space_of(space: object) -> Mapping[str, Any] | str | None:
    """Return a search space as the dict, or the path, that x-tune reads.

    Raises:
        ConfigError: it is none of what `tune` accepts, or a Space cannot be made of its dimensions.
    """
    from xdpx.search.spaces import Dimension, Space

    if isinstance(space, list | tuple) and all(isinstance(each, Dimension) for each in space):
        space = Space(space)
    if isinstance(space, Space):
        return space.describe()
    if space is None or isinstance(space, Mapping):
        return space
    if isinstance(space, str | os.PathLike):
        return str(os.fspath(space))
    remedy = "Give {name: {type: ..., values: [...]}}, the path of a space_config, or a Space."
    raise ConfigError(LITERAL, [Fault("space", f"is {shown(space)}.", remedy)])


@contextmanager
def _done(command: str, config: Config, overrides: Mapping[str, Any]) -> Generator[Run]:
    """Check and perform one run of a command, and yield it."""
    load_user_modules()
    words = [f"{key}={_as_text(key, value)}" for key, value in overrides.items()]
    with TemporaryDirectory() as folder:
        source = _written(config, folder) if isinstance(config, Mapping) else os.fspath(config)
        try:
            runs = load(source, command, words, inspect=batch.inspect)
        except ConfigError as error:
            raise _without(error, folder) from error.__cause__
        if len(runs) > 1:
            problem = f"describes {len(runs)} runs."
            raise ConfigError(runs[0].source, [Fault("config", problem, f"Run each by itself, or use {command}.")])
        run = replace(runs[0], source=LITERAL) if isinstance(config, Mapping) else runs[0]
        code = batch.run_all([run])
    if code == EXIT_CODE:
        reason = str(batch.stored_status(run).get("reason", ""))
        if reason and "SIGINT" not in reason:
            raise SystemExit(EXIT_CODE)
        raise KeyboardInterrupt(reason)
    if code:
        raise RuntimeError(f"{command} ended with exit code {code}; the log above says why.")
    yield run


def _where(run: Run) -> str:
    """Return the folder that a run was trained in: with `auto_suffix` the last one with its fingerprint."""
    folder = str(run.values["save_dir"])
    if not run.values.get("auto_suffix"):
        return folder
    taken = takewhile(io.exists, (f"{folder.rstrip('/')}-{number}" for number in count(1)))
    found = [each for each in (folder, *taken) if (told := read_status(each)) and told.fingerprint == fingerprint(run)]
    return found[-1] if found else folder


LITERAL = "the dict"
"""The name of a config given as a dict, in messages and files."""


def _written(config: Mapping[str, Any], folder: str) -> str:
    """Write a config given as a dict to a file; its ./ and ../ are relative to the working directory."""
    path = io.join(folder, "config.json")
    write_text(path, _as_text("config", _placed(config)))
    return path


def _placed(value: object) -> Any:
    if isinstance(value, Mapping):
        return {key: _placed(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_placed(inner) for inner in value]
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    return io.abspath(text) if isinstance(text, str) and text.startswith(("./", "../")) else text


def _as_text(key: str, value: object) -> str:
    def plain(one: Any) -> Any:
        if isinstance(one, os.PathLike):
            return os.fspath(one)
        if hasattr(one, "tolist"):  # numbers and arrays of numpy and torch
            return one.tolist()
        raise TypeError(f"contains a {type(one).__name__}.")

    try:
        return json.dumps(value, ensure_ascii=False, default=plain)
    except (TypeError, ValueError) as error:
        remedy = "Use texts, numbers, lists and dicts."
        raise ConfigError(LITERAL, [Fault(key, str(error), remedy)]) from error


def _without(error: ConfigError, folder: str) -> ConfigError:
    """Return an error without origins in the temporary file of the config."""
    if not error.source.startswith(folder):
        return error
    faults = [
        replace(fault, origin=None) if fault.origin and fault.origin.file.startswith(folder) else fault
        for fault in error.faults
    ]
    return ConfigError(LITERAL, faults)
