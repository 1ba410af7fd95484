"""A finished run, ready to predict: texts -> encoded rows -> answers. No training code is loaded for it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from xdpx.checkpoints import layout
from xdpx.config.args_file import newest_args
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import resolve
from xdpx.config.stored_args import read_args
from xdpx.config.user_modules import load_user_modules
from xdpx.inference.plan import InferenceParameters, InferencePlan, Input, find_input, make_plan, refuse_idle
from xdpx.logger import log
from xdpx.metrics.judging import TAG_COLUMNS
from xdpx.utils import io

if TYPE_CHECKING:
    from xdpx.inference.answers import EncodedRow, Prediction
    from xdpx.inference.predictor import Predictor
    from xdpx.loaders.parsers.base import Row
    from xdpx.logger import ProgressBar

Text = str | Iterable[str] | Mapping[str, str]
"""One row: a text; several texts as a tuple, a list or a dict by name; for tagging also the list of words."""
LOADED = "load_run"
"""The source that error messages name for arguments of `load_run`."""
WATCHED = 2048
"""Number of rows from which on a progress bar is shown."""


class _Locks:
    """The locks of one process: one for computing, one for encoding."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.computing, self.encoding = threading.RLock(), threading.RLock()


class TrainedRun:
    """A trained model with everything it needs to predict from raw text. Returned by `load_run`.

    Threads may share it: one at a time uses the model, and another may encode meanwhile. After a fork, each process
    has its own locks.
    """

    def __init__(self, plan: InferencePlan, options: InferenceParameters) -> None:
        self._plan, self._options = plan, options
        self._of_process = _Locks()

    def __repr__(self) -> str:
        values = self._plan.train.values
        return f"TrainedRun({self.checkpoint!r}, model={values['model']!r}, labels={self.labels!r})"

    @property
    def save_dir(self) -> str:
        """The folder of the run."""
        return str(self._options.save_dir)

    @property
    def checkpoint(self) -> str | None:
        """The file of the weights in use; None for the initial ones."""
        return self._plan.checkpoint

    @property
    def labels(self) -> list[str] | None:
        """The labels, in the order of their classes; None where there are none."""
        return self._predictor.labels

    @property
    def text_fields(self) -> tuple[str, ...]:
        """The names of the texts of a row: one, or two for a model of text pairs."""
        return tuple(self._predictor.loader.column_names)

    @property
    def gives_lists(self) -> bool:
        """Whether a row may have several labels, or has a tag for each word."""
        return self._predictor.loader.several_labels or self._predictor.columns == TAG_COLUMNS

    def cost_of_exact(self) -> str:
        """Return a sentence on how much slower exact batches are, measured on predicted rows; "" if there were none."""
        with self._turn(self._locks.computing) as predictor:
            return predictor.cost_of_exact()

    @cached_property
    def config(self) -> dict[str, Any]:
        """The value of every key of x-train with which the run was trained."""
        path = newest_args(self.save_dir)
        return read_args(path) if path else dict(self._plan.train.values)

    @cached_property
    def scores(self) -> dict[str, float]:
        """The metrics that training logged for these weights on its `valid_subset`; empty if it logged none."""
        logged = logged_scores(self._plan, self.save_dir) or {}
        return {
            name.removeprefix("valid_"): value for name, value in logged.items() if name.startswith("valid_")
        }  # fmt: skip

    def predict(self, texts: Iterable[Text]) -> list[Prediction]:
        """Return a prediction for each text, in the same order; equal to those of x-pred.

        Args:
            texts: a list, an array, or a column of a table; for a model of text pairs, its items are tuples.

        Raises:
            ConfigError: an item is not a text, or not a pair for a model of pairs; or the model predicts nothing for
                single rows.
        """
        from xdpx.inference.predictor import CHUNK_ROWS

        rows = self._rows(texts)
        parts = [rows[start : start + CHUNK_ROWS] for start in range(0, len(rows), CHUNK_ROWS)]
        if len(rows) < WATCHED:
            return [one for part in parts for one in self._answered(part)]
        found: list[Prediction] = []
        bar: ProgressBar[Any]
        with log.progress(total=len(rows), what="predict", unit="row") as bar:
            for part in parts:
                found += self._answered(part)
                bar.update(len(part))
        return found

    def encode(self, texts: Iterable[Text]) -> list[EncodedRow]:
        """Return encoded rows for `answer`, one for each text: the first half of `predict`, which tokenizes.

        It does not wait for a thread that computes. Rows of several calls may be passed to `answer` together.

        Args:
            texts: as `predict` takes them.

        Raises:
            ConfigError: as `predict`.
        """
        return self._encoded(self._rows(texts))

    def answer(self, encoded: Sequence[EncodedRow], *, batch_size: int | None = None) -> list[Prediction]:
        """Return a prediction for each encoded row, in the same order: the second half of `predict`, which computes.

        Args:
            encoded: rows from one or several calls of `encode` of this run.
            batch_size: rows per batch; rows of similar length are batched together. None: all in one batch.

        Raises:
            ConfigError: the model predicts nothing for single rows.
        """
        from xdpx.inference.answers import answers

        with self._turn(self._locks.computing) as predictor:
            return answers(predictor, encoded, batch_size=batch_size or max(len(encoded), 1))

    def evaluate(
        self, data: str | os.PathLike[str] | Iterable[Text] | None = None, labels: Iterable[Any] | None = None
    ) -> dict[str, float]:
        """Return the metrics of labelled data, each computed once over all rows; equal to those of x-eval.

        Args:
            data: a split of the run's data_dir, a file with labels, or texts as `predict` takes them; None for the
                validation split of training.
            labels: one for each text, written as in the training data.

        Raises:
            ConfigError: the data do not exist or are empty, labels are missing, or one was not seen in training
                (of a regression: is not a number).
        """
        from xdpx.inference.given import rows_of, with_labels
        from xdpx.reports.run_tables import beside
        from xdpx.tasks.scoring import score

        with self._turn(self._locks.computing) as predictor, self._turn(self._locks.encoding):
            if labels is not None:
                rows = with_labels(rows_of(data, predictor.loader), labels, predictor.loader)
                if not rows:
                    raise ConfigError(
                        "evaluate", [Fault("data", "contains no row to score.", "Give at least one text.")]
                    )
                source = self._input(rows)
            elif data is None or isinstance(data, str | os.PathLike):
                name = str(self._plan.train.values["valid_subset"]) if data is None else os.fspath(data)
                source = find_input(name, self._plan, "data", "evaluate")
                refuse_idle(self._plan, [source], "evaluate")
            else:
                raise ConfigError("evaluate", [Fault("labels", "are missing.", "Give one for each text: labels=[...]")])
            found = score(predictor.engine, predictor.state, predictor.scored_batches(source), predictor.task.loss)
            return dict(sorted({**found.metrics, **beside(found.metrics, log.take_accumulated())}.items()))

    def _rows(self, texts: Iterable[Text]) -> list[Row]:
        from xdpx.inference.answers import refuse_without_answer
        from xdpx.inference.given import rows_of

        with self._placed():
            refuse_without_answer(self._predictor)
            return rows_of(texts, self._predictor.loader)

    def _encoded(self, rows: list[Row]) -> list[EncodedRow]:
        from xdpx.inference.answers import encoded

        with self._turn(self._locks.encoding) as predictor:
            return encoded(predictor, self._input(rows)) if rows else []

    def _answered(self, rows: list[Row]) -> list[Prediction]:
        return self.answer(self._encoded(rows), batch_size=self._plan.batch_size)

    def _input(self, rows: list[Row]) -> Input:
        return Input("texts", "texts", is_store=False, reading=self._plan.prepro, rows=rows)

    @contextmanager
    def _turn(self, lock: threading.RLock) -> Generator[Predictor]:
        """Yield the predictor with a lock held: one thread at a time encodes, and one computes, as both keep state."""
        with lock, self._placed():
            yield self._predictor

    @property
    def _locks(self) -> _Locks:
        if os.getpid() != self._of_process.process:  # forked: threads that held a lock do not exist here
            if "torch" in sys.modules:
                import torch

                torch.set_num_threads(1)
            self._of_process = _Locks()
        return self._of_process

    @contextmanager
    def _placed(self) -> Generator[None]:
        """Set the folder of the run as the source of a ConfigError raised inside."""
        try:
            yield
        except ConfigError as error:
            raise error.placed(self.save_dir, {}) from error.__cause__

    @cached_property
    def _predictor(self) -> Predictor:
        from xdpx.inference.predictor import Predictor

        predictor = Predictor(self._plan, cuda=self._options.cuda, seed=self._options.seed)
        self._plan = predictor.plan
        return predictor


def load_run(
    save_dir: str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    cuda: bool | None = None,
    engine: Literal["pytorch", "spmd"] | None = None,
    extra_config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    exact: bool = False,
    threads: int | None = None,
) -> TrainedRun:
    """Return a finished run, ready to predict.

    Args:
        save_dir: its folder, local or in an object store.
        checkpoint: the weights: a file, `<best>` or `<last>`; by default the best.
        batch_size: texts per batch; by default as in training.
        cuda: use the GPU; by default whether there is one.
        engine: by default as in training.
        extra_config: values that override those of the run, such as a data_dir that was moved; or a config of values.
        exact: make the outputs of a row bit-identical in every batch; `cost_of_exact` measures the slowdown.
        threads: CPU threads for a batch of an export; by default those of its library. For a run with weights, use
            `torch.set_num_threads`.

    Raises:
        ConfigError: there is no run, a part of it is missing or does not fit, or `threads` is below 1; the text says
            which.
        OSError: the disk or the network failed, or a file of the run is damaged.
    """
    load_user_modules()
    given: dict[str, Any] = {"save_dir": os.fspath(save_dir), "checkpoint": checkpoint and os.fspath(checkpoint)}
    given |= {"batch_size": batch_size, "cuda": cuda, "engine": engine, "exact": exact}
    if isinstance(extra_config, str | os.PathLike):
        given["extra_config"] = os.fspath(extra_config)
    else:
        given["extra_config"] = dict(extra_config or {})
    return opened(given, threads=threads)


def opened(given: Mapping[str, Any], *, threads: int | None = None) -> TrainedRun:
    """Return a finished run.

    Args:
        given: keys of `InferenceParameters`.
        threads: as `load_run`.

    Raises:
        ConfigError: as `load_run`.
    """
    if threads is not None and (type(threads) is not int or threads < 1):
        remedy = "Use a whole number from 1, or None for as many as its library takes."
        raise ConfigError(LOADED, [Fault("threads", f"is {threads!r}.", remedy)])
    # Checked as keys of x-eval, for the same messages; its inputs are given later.
    asked = {"valid_subset": [], **given}
    keys = resolve(asked, "x-eval", source=LOADED, strict=False, paths=False, unruled=frozenset({"command"}))
    options = InferenceParameters.model_validate({key: keys.values[key] for key in InferenceParameters.model_fields})
    run = TrainedRun(replace(make_plan(options, LOADED), threads=threads), options)
    with run._turn(run._locks.computing):
        return run


def logged_scores(plan: InferencePlan, save_dir: str) -> Mapping[str, float] | None:
    """Return the metrics that training logged at the step of the plan's checkpoint; None if it logged none."""
    from xdpx.reports.run_logs import read_run

    step = layout.step_of(io.name(plan.checkpoint or ""))
    valid = read_run(save_dir, train=False).valid
    rows = [index for index, each in enumerate(valid["step"].tolist()) if each == step]
    return valid.row(rows[-1]) if rows else None
