"""The commands from Python: `train`, `tune`, and `preprocess` for x-prepro; `inference.session` is for the rest."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, takewhile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from xdpx.commands import batch
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run, fingerprint, load
from xdpx.config.user_modules import load_user_modules
from xdpx.inference.session import TrainedRun, opened
from xdpx.training.preemption import EXIT_CODE
from xdpx.training.status import read_status
from xdpx.utils import io
from xdpx.utils.commit import write_text

if TYPE_CHECKING:
    from xdpx.search.spaces import Space

Config = str | os.PathLike[str] | Mapping[str, Any]

# ---- doing commands


def train(config: Config, **overrides: Any) -> TrainedRun:
    """Train as x-train does, with the same checks, files and log, and return the run.

    Args:
        config: a file, the name of a family, or the values as a dict, which may have a `__parent__` too.
        **overrides: values of keys, which win over the config: `learning_rate=1e-3`.

    Raises:
        ConfigError: with every fault of the config, before anything is touched.
        KeyboardInterrupt: it was interrupted, after saving; the same call goes on where the config says resume: auto.
        SystemExit: another signal than that of Ctrl-C did so; the code is 85.
    """
    with _done("x-train", config, overrides) as run:
        return opened({"save_dir": _where(run)})


def preprocess(config: Config, **overrides: Any) -> str:
    """Preprocess raw files as x-prepro does, with the same checks, files and log, and return the data_dir.

    Args:
        config: a file, the name of a family, or the values as a dict, which may have a `__parent__` too.
        **overrides: values of keys, which win over the config: `max_len=64`.

    Raises:
        ConfigError: with every fault of the config, before anything is touched, or with what is wrong in the files.
    """
    with _done("x-prepro", config, overrides) as run:
        return str(run.values["data_dir"])


@dataclass(frozen=True)
class Tuned:
    """What a search found. `tune` makes it.

    Attributes:
        save_dir: the folder of the search.
        values: the best value of each parameter.
        score: the best score of the major metric.
        trial: the number of the best trial.
        config: a config of x-train with the best values, ready to train.
    """

    save_dir: str
    values: dict[str, Any]
    score: float
    trial: int
    config: str

    @property
    def run_dir(self) -> str:
        """The folder of the best trial, for `load_run`; of one of several runs the folder above them."""
        return io.join(self.save_dir, f"trial_{self.trial}")


def tune(config: Config, *, space: Mapping[str, Any] | Space | None = None, **overrides: Any) -> Tuned:
    """Search as x-tune does, with the same checks, files and log, and return what was found.

    Args:
        config: a file, or the values as a dict, whose `base_config` may be a dict, too.
        space: the search space, as a dict or built of `xdpx.search.spaces`; None for that of space_config.
        **overrides: values of keys, which win over the config: `max_trials=32`.

    Raises:
        ConfigError: with every fault of the configs, before anything is touched; or no trial could be trained.
        KeyboardInterrupt: it was interrupted, after saving; the same call goes on.
        SystemExit: another signal than that of Ctrl-C did so; the code is 85.
    """
    with TemporaryDirectory() as folder:
        parts = {"base_config": config.get("base_config")} if isinstance(config, Mapping) else {}
        parts |= {"base_config": overrides["base_config"]} if "base_config" in overrides else {}
        parts["space_config"] = space if space is None or isinstance(space, Mapping) else space.describe()
        for key, part in parts.items():
            if isinstance(part, Mapping):
                overrides[key] = io.join(folder, f"{key}.json")
                write_text(overrides[key], _as_text(key, _placed(part)))
        if isinstance(config, Mapping):
            config = {key: value for key, value in config.items() if key not in overrides}
        with _done("x-tune", config, overrides) as run:
            found = batch.stored_status(run)
            save_dir = str(run.values["save_dir"])
            best = io.join(save_dir, "best.hjson")
            return Tuned(save_dir, found["best_values"], found["best_score"], found["best_trial"], best)


@contextmanager
def _done(command: str, config: Config, overrides: Mapping[str, Any]) -> Generator[Run]:
    """Check and do one run of a command, and yield it."""
    load_user_modules()
    words = [f"{key}={_as_text(key, value)}" for key, value in overrides.items()]
    with TemporaryDirectory() as folder:
        source = _written(config, folder) if isinstance(config, Mapping) else os.fspath(config)
        try:
            runs = load(source, command, words, inspect=batch.inspect)
        except ConfigError as error:
            raise _without(error, folder) from error.__cause__
        if len(runs) > 1:
            problem = f"stands for {len(runs)} runs."
            raise ConfigError(runs[0].source, [Fault("config", problem, f"Do each by itself, or use {command}.")])
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
    """Return the folder that a run was trained in: with `auto_suffix` the last one that it may have taken."""
    folder = str(run.values["save_dir"])
    if not run.values.get("auto_suffix"):
        return folder
    taken = takewhile(io.exists, (f"{folder.rstrip('/')}-{number}" for number in count(1)))
    found = [each for each in (folder, *taken) if (told := read_status(each)) and told.fingerprint == fingerprint(run)]
    return found[-1] if found else folder


LITERAL = "the dict"
"""What messages and files call a config that is none."""


def _written(config: Mapping[str, Any], folder: str) -> str:
    """Write a config that is a dict where it can be read like any other; ./ and ../ are of the working directory."""
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
        if hasattr(one, "item"):  # numbers of numpy and torch
            return one.item()
        raise TypeError(f"holds a {type(one).__name__}.")

    try:
        return json.dumps(value, ensure_ascii=False, default=plain)
    except (TypeError, ValueError) as error:
        remedy = "Use texts, numbers, lists and dicts."
        raise ConfigError(LITERAL, [Fault(key, str(error), remedy)]) from error


def _without(error: ConfigError, folder: str) -> ConfigError:
    """Return an error without the places in a file that is gone when it is read."""
    if not error.source.startswith(folder):
        return error
    faults = [
        replace(fault, origin=None) if fault.origin and fault.origin.file.startswith(folder) else fault
        for fault in error.faults
    ]
    return ConfigError(LITERAL, faults)
