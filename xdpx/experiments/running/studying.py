"""`x-exp --study`: search over the fields of an experiment. Each trial is a job of its own, trained in stages.

`xdpx.search` decides which trials are started and continued; a continued trial resumes its job exactly. All processes
of a job train the trials together, one after another.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdpx.checkpoints import spmd_folders
from xdpx.config.faults import ConfigError, Fault, did_you_mean, wrong_return
from xdpx.experiments.base_experiment import BaseExperiment
from xdpx.experiments.describing import model_params_text
from xdpx.experiments.fields import check_value, fields_of, is_field_name
from xdpx.experiments.running import job_folder
from xdpx.experiments.running.options import RunOptions
from xdpx.experiments.running.parts import Parts, build_parts, ranks_for, training_template
from xdpx.experiments.running.programs import DecodeProgram, EvalProgram, Program
from xdpx.experiments.running.starting import checkpoint_in
from xdpx.experiments.running.training import train
from xdpx.experiments.running.watching import results_at
from xdpx.logger import log
from xdpx.search.journal import Journal, facts_of
from xdpx.search.schedules import Budget
from xdpx.search.search import Search, make_search
from xdpx.search.spaces import Space, Values
from xdpx.search.together import search_together
from xdpx.search.trials import Order, Result
from xdpx.training.status import read_status
from xdpx.utils import commit, io
from xdpx.utils.memory import comes_of_out_of_memory

DECISIONS = "decisions.tsv"
MOST_CHECKED = 64
"""Number of values of a parameter that are checked against the type of its field before training starts."""


@dataclass(frozen=True)
class StudyOptions:
    """The options of a study, besides its experiment and the options of its runs.

    Attributes:
        study: name of the study; its folder cannot be used for another one.
        num_trials: maximum number of trials.
        metrics_from: `eval` or `decode`, whose metrics give the score of a trial.
        search: the result of `search_options_of`.
    """

    study: str
    num_trials: int
    metrics_from: str
    search: Mapping[str, Any]


def space_of(experiment: BaseExperiment) -> Space:
    """Return the validated search space of an experiment.

    Raises:
        ConfigError: there is none, or it names an unknown field or values of the wrong type.
    """
    name, written = type(experiment).__name__, experiment.search_space()
    if written is None:
        remedy = "Define search_space(), which returns {FIELD: {type: ..., values: [...]}}."
        raise ConfigError(name, [Fault("--study", "found no search space in the experiment.", remedy)])
    if not isinstance(written, Mapping | Space):
        remedy = "Return {FIELD: {type: ..., values: [...]}}, or a Space."
        raise wrong_return("--study", experiment, "search_space", f"{written!r:.60}", remedy)
    space = written if isinstance(written, Space) else Space.read(written, source=f"{name}.search_space()")
    fields, faults = fields_of(type(experiment)), list[Fault]()
    for dimension in space.dimensions:
        if dimension.name not in fields:
            remedy = did_you_mean(dimension.name, fields, f"There are: {', '.join(fields)}.")
            faults.append(Fault(dimension.name, "is not a field of the experiment.", remedy))
            continue
        for value in dimension.grid(2)[:MOST_CHECKED]:
            try:
                check_value(name, fields, dimension.name, value)
            except TypeError as error:
                faults.append(Fault(dimension.name, str(error).partition(": ")[2], "Change the space, or the field."))
                break
    if faults:
        raise ConfigError(f"{name}.search_space()", faults)
    return space


def search_options_of(experiment: BaseExperiment, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a study: those given, else the experiment's `search_options`, else the defaults.

    Raises:
        ConfigError: `search_options` returns something else.
    """
    own: Any = experiment.search_options()
    if not isinstance(own, dict):
        raise wrong_return("--study", experiment, "search_options", f"{own!r:.60}", "Return {option: value}.")
    usual = BaseExperiment.search_options(experiment)
    chosen = {**({} if type(experiment).search_options is BaseExperiment.search_options else own), **given}
    if "direction" not in chosen and type(experiment).search_score is not BaseExperiment.search_score:
        log.warning(
            f"--study: the lowest search_score() of {type(experiment).__name__} counts as the best, as no direction "
            "is given. Let search_options() return 'direction': 'minimize' or 'maximize'.",
            once=True,
        )
    return {**usual, **chosen}


def _refuse_unmeasured(experiment: BaseExperiment, metrics_from: str) -> None:
    """Raise ConfigError for trials that would train and then have no metric to be compared by."""
    if type(experiment).search_score is not BaseExperiment.search_score:
        return
    where = "decode_datasets()" if metrics_from == "decode" else "datasets() with is_training=False"
    inputs = experiment.decode_datasets() if metrics_from == "decode" else experiment.datasets()
    if all(template.is_training for template in inputs):
        problem = f"compares trials by the metrics of inputs in {where}; there are none."
        raise ConfigError(type(experiment).__name__, [Fault("--study", problem, "Give one, or define search_score().")])


class Study:
    """A study, on one of the processes that train its trials.

    Args:
        experiment: the base of all trials, which differ only in the fields of the search space.
        options: of a run; `job_log_dir` is the folder of the study, with a folder `trial_<number>` per trial.
        wanted: options of the study.

    Attributes:
        has_best: whether any trial has a score.
    """

    def __init__(self, experiment: BaseExperiment, options: RunOptions, wanted: StudyOptions) -> None:
        self._experiment, self._options, self._wanted = experiment, options, wanted
        self._space = space_of(experiment)
        _refuse_unmeasured(experiment, wanted.metrics_from)
        parts = build_parts(experiment, options)
        training_template(experiment)
        self._ranks = ranks_for("study", options)
        per_step = parts.rows
        self._budget = Budget(int(parts.train.num_train_steps) * per_step, per_step)
        self._interrupted = self.has_best = False

    def search(self) -> bool:
        """Run or resume the search, on all processes; False if a signal interrupted it."""
        search = search_together(
            self._journal, self._carry_out, is_first=self._ranks.rank == 0, broadcast=self._ranks.broadcast
        )
        if search is not None:
            self._tell(search)
        self.has_best = self._ranks.broadcast(search is not None and search.best is not None)
        return not self._interrupted

    def _journal(self) -> Journal:
        wanted = self._wanted

        def build(recorded: Mapping[int, Values]) -> Search:
            options: Any = wanted.search
            return make_search(
                self._space, budget=self._budget, max_trials=wanted.num_trials, recorded=recorded, **options
            )

        described = model_params_text(self._experiment)
        facts = {
            **facts_of(build({})), "study": wanted.study, "metrics_from": wanted.metrics_from,
            "experiment": hashlib.sha256(described.encode()).hexdigest(),
        }  # fmt: skip
        return Journal(self._options.job_log_dir, facts=facts, build=build)

    def _tell(self, search: Search) -> None:
        """Write the table of decisions, and log the best trial."""
        names = ("number", "trial", "verdict", "samples", "score", "why")
        rows = [names, *(tuple(getattr(each, name) for name in names) for each in search.decisions)]
        text = "".join("\t".join("" if cell is None else str(cell) for cell in row) + "\n" for row in rows)
        commit.write_text(io.join(self._options.job_log_dir, DECISIONS), text)
        best = search.best
        if best is not None:
            said = " ".join(f"--set {name}={value}" for name, value in best.values.items())
            log.info(f"best so far: trial {best.number} with {best.best:.6g}, {self._folder(best.number)}: {said}")
        elif search.finished:
            log.warning(f"no trial gave a score; {DECISIONS} lists why each failed.")

    # ---- one order

    def _carry_out(self, order: Order) -> Result | None:
        """Train and score the job of a trial on all processes; None if a signal interrupted it.

        Raises:
            ConfigError: the trial is not comparable with the others, or its folder holds another job.
        """
        try:
            parts = self._parts_of(order)
        except ConfigError as error:  # inconsistent values
            return _failed(order, error)
        steps = self._steps(parts, order)
        parts = replace(parts, options=replace(parts.options, stop_at_step=steps))
        _refuse_another_job(parts)
        try:
            return self._trained(parts, order, steps)
        except FloatingPointError as error:
            return _failed(order, error)
        except (MemoryError, RuntimeError) as error:
            if self._ranks.size > 1 or not comes_of_out_of_memory(error):
                raise  # other processes would wait for this one
            return _failed(order, error)

    def _folder(self, number: int) -> str:
        return io.join(self._options.job_log_dir, f"trial_{number}")

    def _parts_of(self, order: Order) -> Parts:
        given = {name: value for name, value in vars(self._experiment).items() if is_field_name(name)}
        trial = type(self._experiment)(**{**given, **order.values})
        trial.CALLBACKS = _anew(trial.CALLBACKS)
        trial.validate()
        callbacks = _anew(self._options.callbacks)
        return build_parts(trial, replace(self._options, job_log_dir=self._folder(order.trial), callbacks=callbacks))

    def _steps(self, parts: Parts, order: Order) -> int:
        """Return the update at which a trial has seen the ordered number of samples."""
        each, last = parts.rows, int(parts.train.num_train_steps)
        if abs(each * last - self._budget.total) >= max(each, self._budget.per_step):
            problem = (
                f"trains on {each * last:,} rows in total ({last:,} updates of {each:,}), but the study compares runs "
            )
            problem += f"of {self._budget.total:,}."
            remedy = "Let the number of updates follow from the batch, or leave both out of the search space."
            raise ConfigError(type(self._experiment).__name__, [Fault(f"trial {order.trial}", problem, remedy)])
        return min(last, math.ceil(order.samples / each))

    def _trained(self, parts: Parts, order: Order, steps: int) -> Result | None:
        status = read_status(parts.folder)
        # By its own rule, such as `early_stopping_fn`.
        ended_early = status is not None and status.status == "finished" and status.step < status.until
        if not ended_early and not train(parts).finished:
            self._interrupted = True
            return None
        checkpoint = checkpoint_in(parts.folder, None, parts=parts)
        reached = int(spmd_folders.read_metadata(checkpoint)["step"])
        score = _score(parts.experiment, self._metrics(parts, checkpoint))
        samples = order.samples if reached >= steps else reached * parts.rows
        return Result(order.number, samples, score, ended=reached < steps)

    def _metrics(self, parts: Parts, checkpoint: str) -> dict[str, float]:
        """Return the metrics of a checkpoint from evaluation or decoding, reusing existing outputs."""
        programs: list[Program]
        if self._wanted.metrics_from == "decode":
            programs = [DecodeProgram(parts, data, "decode_test") for data in parts.decode_inputs()]
        else:
            programs = [EvalProgram(parts, data, "eval_test") for data in parts.eval_inputs()]
        try:
            found = results_at(parts, programs, checkpoint)
        finally:
            for program in programs:
                program.close()
        metrics: dict[str, float] = parts.ranks.broadcast(found)
        return metrics


def _score(experiment: BaseExperiment, metrics: Mapping[str, float]) -> float:
    found: Any = experiment.search_score(metrics)
    try:
        return float(found)
    except (TypeError, ValueError) as error:
        told = f"{found!r:.60}, which is not a number"
        raise wrong_return("--study", experiment, "search_score", told, "Return one number.") from error


def _anew(callbacks: Sequence[Any]) -> list[Any]:
    """Return callbacks for one trial: copies of objects, which would otherwise count on from the trial before."""
    found = []
    for one in callbacks:
        try:
            found.append(copy.deepcopy(one))
        except Exception as error:  # an open file, a lock
            name, why = type(one).__name__, f"{type(error).__name__}: {error}"
            log.warning(f"callbacks: all trials share one {name}, because it cannot be copied ({why}).", once=True)
            found.append(one)
    return found


def _failed(order: Order, error: Exception) -> Result:
    note = " ".join(str(error).split()) or type(error).__name__
    log.warning(f"trial {order.trial} failed: {note}")
    return Result(order.number, order.begin, None, note=note)


def _refuse_another_job(parts: Parts) -> None:
    """Raise ConfigError if the folder of a trial holds a job with other values."""
    if job_folder.content(parts.folder) == "run" and (changed := job_folder.changes(parts)):
        problem = f"'{parts.folder}' contains a different job: {changed[0]}."
        raise ConfigError("study", [Fault("job_log_dir", problem, "Choose another job_log_dir.")])
