"""Run an experiment: train it, evaluate and decode its checkpoints, and write the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xdpx.experiments.base_experiment import BaseExperiment
    from xdpx.experiments.running.options import RunOptions
    from xdpx.utils.paths import StrPath

__all__ = ["run", "study"]

FINISHED, FAILED = 0, 1


def run(
    experiment: BaseExperiment | type[BaseExperiment], *, job_log_dir: StrPath, mode: str = "train", **options: Any
) -> int:
    """Run an experiment, from a command line or a notebook. Called on all processes.

    A job that is run again resumes exactly: weights, optimizer state and position in the data are bit-identical.

    Args:
        experiment: the class, or an instance with overridden fields: `Mine(MODEL_DIMS=32)`.
        job_log_dir: folder of the job, local or remote.
        mode: `train`; `eval` or `decode`: every checkpoint as it appears; `decode_once`, `infer`: a single checkpoint.
        options: see `options.RunOptions`.

    Returns:
        0, or the exit code for a run that was interrupted by a signal and that the same call will resume.

    Raises:
        ConfigError: the request is invalid; the message lists all reasons.
        OSError: the disk or the network failed, or another run owns the folder.
    """
    from xdpx.engines.spmd.pgle import warn_where_useless
    from xdpx.experiments.running.options import options_of
    from xdpx.experiments.running.parts import build_parts, training_template
    from xdpx.training.preemption import EXIT_CODE

    wanted = options_of(job_log_dir, {"mode": mode, **options})
    _prepare_jax(wanted)
    parts = build_parts(experiment() if isinstance(experiment, type) else experiment, wanted)
    warn_where_useless(wanted.profile_guided, parts.mesh.devices.flat[0].platform)
    if wanted.trains:
        training_template(parts.experiment)  # refuses an experiment without one now, before it claims the folder
        from xdpx.experiments.running.training import train

        return FINISHED if train(parts).finished else EXIT_CODE
    from xdpx.experiments.running.watching import look_at_checkpoints
    from xdpx.logger import log

    log.info(look_at_checkpoints(parts))
    return FINISHED


def study(
    experiment: BaseExperiment | type[BaseExperiment], *, job_log_dir: StrPath, name: str, num_trials: int = 20,
    metrics_from: str = "eval", search: Mapping[str, Any] | None = None, **options: Any,
) -> int:  # fmt: skip
    """Search over the fields in an experiment's `search_space`. Called on all processes.

    Each trial is a job in `trial_<number>` of the folder, trained as far as the schedule asks for and resumed exactly
    when it is continued. A study that is run again resumes; it repeats no update that was saved.

    Args:
        experiment: as for `run`; trials differ from it only in the fields of the search space.
        job_log_dir: folder of the study, local or remote.
        name: of the study; the folder cannot be used for another one afterwards.
        num_trials: maximum number of trials.
        metrics_from: which metrics decide the score of a trial: `eval` or `decode`.
        search: options that override the experiment's `search_options`.
        options: see `options.RunOptions`.

    Returns:
        0; 1 if no trial produced a score; or the exit code for a study that was interrupted by a signal.

    Raises:
        ConfigError: the request is invalid, or the folder belongs to another study; the message lists all reasons.
        OSError: the disk or the network failed, or another study owns the folder.
    """
    from xdpx.experiments.running.options import options_of
    from xdpx.experiments.running.studying import Study, StudyOptions, search_options_of
    from xdpx.training.preemption import EXIT_CODE

    made = experiment() if isinstance(experiment, type) else experiment
    wanted = options_of(job_log_dir, options)
    _prepare_jax(wanted)
    asked = StudyOptions(name, num_trials, metrics_from, search_options_of(made, search or {}))
    found = Study(made, wanted, asked)
    if not found.search():
        return EXIT_CODE
    return FINISHED if found.has_best else FAILED


def _prepare_jax(options: RunOptions) -> None:
    """Make the settings of this process that JAX reads when it starts: XLA's flags, tracebacks, and a profiler's port.

    Raises:
        ConfigError: XLA has already read its flags, without the requested ones.
    """
    import jax

    from xdpx.engines.spmd import pgle

    pgle.apply(options.profile_guided)
    jax.config.update("jax_traceback_filtering", options.jax_traceback_filtering_option)
    if options.jax_profiler_port is not None:
        jax.profiler.start_server(options.jax_profiler_port)
