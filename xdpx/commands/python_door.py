"""The commands from Python: `load_run` for x-pred and x-eval, `train`, `tune`, and `preprocess` for x-prepro."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, takewhile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from xdpx.commands import batch
from xdpx.commands.evaluate import logged_scores
from xdpx.config.args_file import newest_args
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run, fingerprint, load, resolve
from xdpx.config.stored_args import read_args
from xdpx.config.user_modules import load_user_modules
from xdpx.inference.plan import InferenceParameters, InferencePlan, Input, find_input, make_plan
from xdpx.logger import log
from xdpx.training.preemption import EXIT_CODE
from xdpx.training.status import read_status
from xdpx.utils import io
from xdpx.utils.commit import write_text

if TYPE_CHECKING:
    from xdpx.inference.answers import Prediction
    from xdpx.inference.predictor import Predictor
    from xdpx.logger import Progress
    from xdpx.search.spaces import Space

Config = str | os.PathLike[str] | Mapping[str, Any]
Text = str | Iterable[str] | Mapping[str, str]
"""A text; several in a row as a tuple, a list or a dict; for tags also the list of the words."""
LOADED = "load_run"
"""The source that messages name for what is given to `load_run`."""
WATCHED = 2048
"""From so many rows on, a bar shows how many are done."""


class TrainedRun:
    """A model that x-train made, with all that turns a text into its answer. `load_run` makes it.

    Threads may share one: they take turns. After a fork, each process has its own.
    """

    def __init__(self, plan: InferencePlan, options: InferenceParameters) -> None:
        self._plan, self._options = plan, options
        self._lock = threading.RLock()
        self._process = os.getpid()

    def __repr__(self) -> str:
        values = self._plan.train.values
        return f"TrainedRun({self.checkpoint!r}, model={values['model']!r}, labels={self.labels!r})"

    @property
    def save_dir(self) -> str:
        """The folder of the run."""
        return str(self._options.save_dir)

    @property
    def checkpoint(self) -> str | None:
        """The file of the weights that predict."""
        return self._plan.checkpoint

    @property
    def labels(self) -> list[str] | None:
        """The labels, in the order of their classes; None where there are none."""
        return self._predictor.labels

    @cached_property
    def config(self) -> dict[str, Any]:
        """The value of every key of x-train that the run was trained with."""
        path = newest_args(self.save_dir)
        return read_args(path) if path else dict(self._plan.train.values)

    @cached_property
    def scores(self) -> dict[str, float]:
        """What training logged for these weights on its `valid_subset`, by metric; empty where it logged nothing."""
        logged = logged_scores(self._plan, self.save_dir) or {}
        return {
            name.removeprefix("valid_"): value for name, value in logged.items() if name.startswith("valid_")
        }  # fmt: skip

    def predict(self, texts: Iterable[Text]) -> list[Prediction]:
        """Return a prediction for each text, in their order: with the numbers of x-pred.

        Args:
            texts: a list, an array, a column of a table. For a model of two texts, of tuples of them.

        Raises:
            ConfigError: a row is no text, or no pair where the model reads pairs; or the model predicts no labels.
        """
        from xdpx.inference.answers import answers, refuse_without_answer
        from xdpx.inference.given import rows_of

        with self._turn() as predictor:
            refuse_without_answer(predictor)
            rows = rows_of(texts, predictor.loader)
            if not rows:
                return []
            source = Input("texts", "texts", is_store=False, reading=self._plan.prepro, rows=rows)
            if len(rows) < WATCHED:
                return [one for part in answers(predictor, source) for one in part]
            found: list[Prediction] = []
            bar: Progress[Any]
            with log.progress(total=len(rows), what="predict", unit="row") as bar:
                for part in answers(predictor, source):
                    found += part
                    bar.update(len(part))
            return found

    def evaluate(
        self, data: str | os.PathLike[str] | Iterable[Text] | None = None, labels: Iterable[Any] | None = None
    ) -> dict[str, float]:
        """Return the metrics of labelled data, each computed once over all of it: those of x-eval.

        Args:
            data: a split of the run's data_dir, a file with labels, or texts as `predict` takes them; None for the
                split that training scored.
            labels: of the texts, one for each, as the training data write them.

        Raises:
            ConfigError: there are no such data, they have no labels, or one that training never saw.
        """
        from xdpx.inference.given import rows_of, with_labels
        from xdpx.training.evaluation import score

        with self._turn() as predictor:
            if labels is not None:
                rows = with_labels(rows_of(data, predictor.loader), labels, predictor.loader)
                source = Input("texts", "texts", is_store=False, reading=self._plan.prepro, rows=rows)
            elif data is None or isinstance(data, str | os.PathLike):
                name = str(self._plan.train.values["valid_subset"]) if data is None else os.fspath(data)
                source = find_input(name, self._plan, "data", "evaluate")
            else:
                raise ConfigError("evaluate", [Fault("labels", "are missing.", "Give one for each text: labels=[...]")])
            found = score(predictor.engine, predictor.state, predictor.scored_batches(source), predictor.task.loss)
            return dict(sorted({**found.metrics, **log.take_accumulated()}.items()))

    @contextmanager
    def _turn(self) -> Generator[Predictor]:
        """Let one thread at a time use the model, which keeps what it learned of words and times."""
        if os.getpid() != self._process:  # forked: threads of the parent, and perhaps who held the lock, are gone
            import torch

            torch.set_num_threads(1)
            self._lock, self._process = threading.RLock(), os.getpid()
        with self._lock:
            try:
                yield self._predictor
            except ConfigError as error:
                raise error.placed(self.save_dir, {}) from error.__cause__

    @cached_property
    def _predictor(self) -> Predictor:
        from xdpx.inference.predictor import Predictor

        return Predictor(self._plan, cuda=self._options.cuda, seed=self._options.seed)


def load_run(
    save_dir: str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    cuda: bool | None = None,
    engine: Literal["pytorch", "spmd"] | None = None,
    extra_config: Mapping[str, Any] | None = None,
) -> TrainedRun:
    """Return a finished run, ready to predict.

    Args:
        save_dir: its folder, local or in an object store.
        checkpoint: the weights: a file, `<best>` or `<last>`; by default the best.
        batch_size: texts at a time; by default as in training.
        cuda: use the GPU; by default whether there is one.
        engine: what computes; by default as in training.
        extra_config: values that override those of the run, such as a data_dir that was moved.

    Raises:
        ConfigError: there is no run, or something of it is missing or does not fit; the text says what.
        OSError: the disk or the network failed, or a file of the run is damaged.
    """
    load_user_modules()
    given: dict[str, Any] = {"save_dir": os.fspath(save_dir), "checkpoint": checkpoint and os.fspath(checkpoint)}
    given |= {"batch_size": batch_size, "cuda": cuda, "engine": engine, "extra_config": dict(extra_config or {})}
    run = _opened(given)
    with run._turn():
        return run


def _opened(given: Mapping[str, Any]) -> TrainedRun:
    # Checked as the keys of a command, whose messages these are; what it would score is asked for later.
    command = resolve({"valid_subset": [], **given}, "x-eval", source=LOADED, strict=False, paths=False)
    options: InferenceParameters = command.parameters("command")
    return TrainedRun(make_plan(options, LOADED), options)


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
        return _opened({"save_dir": _where(run)})


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
