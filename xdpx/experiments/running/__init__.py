"""Run an experiment: train it, evaluate and decode its checkpoints, write down what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xdpx.experiments.base_experiment import BaseExperiment
    from xdpx.utils.paths import StrPath

__all__ = ["run", "study"]

FINISHED, FAILED = 0, 1


def run(
    experiment: BaseExperiment | type[BaseExperiment], *, job_log_dir: StrPath, mode: str = "train", **options: Any
) -> int:
    """Run an experiment, from a command line or a notebook; on all processes.

    A job that is run again goes on where it stood: weights, optimizer, the place in the data, all to the bit.

    Args:
        experiment: the class, or one with fields of its own: `Mine(MODEL_DIMS=32)`.
        job_log_dir: where everything goes, any path.
        mode: `train`; `eval` or `decode`: each checkpoint as it comes; `decode_once`, `infer`: one checkpoint.
        options: see `options.RunOptions`.

    Returns:
        0, or the exit code of a run that a signal has interrupted, and that the same call continues.

    Raises:
        ConfigError: what was asked for cannot be; every reason is named.
        OSError: the disk or the network failed, or another run owns the folder.
    """
    from xdpx.engines.spmd.pgle import warn_where_useless
    from xdpx.experiments.running.options import options_of
    from xdpx.experiments.running.parts import build_parts
    from xdpx.experiments.running.process import prepare
    from xdpx.training.preemption import EXIT_CODE

    wanted = options_of(job_log_dir, {"mode": mode, **options})
    prepare(wanted)
    parts = build_parts(experiment() if isinstance(experiment, type) else experiment, wanted)
    warn_where_useless(wanted.profile_guided, parts.mesh.devices.flat[0].platform)
    if wanted.trains:
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
    """Search over the fields in `search_space` of an experiment; on all processes.

    Each trial is a job in `trial_<number>` of the folder, trained as far as the schedule orders and resumed exactly
    when it goes on. A study that is run again goes on where it stood; it trains no update twice that was saved.

    Args:
        experiment: as of `run`; trials differ from it in the fields of the space alone.
        job_log_dir: where everything goes, any path.
        name: of the study. Its folder belongs to it from then on.
        num_trials: most trials to begin.
        metrics_from: what tells how good a trial is: `eval` or `decode`.
        search: options instead of those that `search_options` of the experiment says.
        options: see `options.RunOptions`.

    Returns:
        0; 1 when no trial gave a score; or the exit code of a study that a signal has interrupted.

    Raises:
        ConfigError: what was asked for cannot be, or the folder has another study; every reason is named.
        OSError: the disk or the network failed, or another study owns the folder.
    """
    from xdpx.experiments.running.options import options_of
    from xdpx.experiments.running.process import prepare
    from xdpx.experiments.running.studying import Study, StudyOptions
    from xdpx.training.preemption import EXIT_CODE

    made = experiment() if isinstance(experiment, type) else experiment
    wanted = options_of(job_log_dir, options)
    prepare(wanted)
    asked = StudyOptions(name, num_trials, metrics_from, {**made.search_options(), **(search or {})})
    found = Study(made, wanted, asked)
    if not found.search():
        return EXIT_CODE
    return FINISHED if found.has_best else FAILED
