"""`x-exp` and `python -m xdpx.main`: describe, plan or run an experiment."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from xdpx.commands import child
from xdpx.commands.answer import Done, in_json, or_failure_in_json
from xdpx.commands.experiment_line import Line, parse, usage
from xdpx.commands.outcomes import FINISHED, PREEMPTED, exit_code
from xdpx.config.faults import ConfigError, Fault, found_in
from xdpx.launch.local import Restarts, run_together
from xdpx.utils.distributed_utils import get_world_size
from xdpx.utils.progress import quietly

if TYPE_CHECKING:
    from xdpx.experiments.base_experiment import BaseExperiment

T = TypeVar("T")
_EXTRA = frozenset({"jax", "jaxlib", "flax", "optax", "orbax", "fiddle"})
LOOKS = ("describe", "dry", "plan")
MAX_RESTARTS = 3
PRELOADED = (
    "xdpx.utils.rarely_collected", "jax", "orbax.checkpoint", "xdpx.experiments.running.training",
    "xdpx.experiments.running.user_callbacks", "jax.experimental.serialize_executable",
)  # fmt: skip
"""Modules that take seconds to import and use no device of JAX."""


def answered(words: Sequence[str]) -> int:
    """Do what the words request, including `--quiet` and `--json`; print errors. Return the exit code."""
    asked = [word for word in words if word != "--quiet"]
    verbose = "--verbose" in asked
    with quietly(wanted=len(asked) < len(words)):
        if "--json" not in asked:
            return exit_code(lambda: main(asked), verbose=verbose)
        if {"--plan", "--dry", "--help", "-h"} & set(asked):
            return or_failure_in_json(lambda: exit_code(lambda: main(asked), verbose=verbose))
        asked = [word for word in asked if word != "--json"]

        def work(jobs: list[Done]) -> int:
            folder = next((word.partition("=")[2] for word in asked if word.startswith("--job_log_dir=")), "")
            jobs.append(done := Done("x-exp", asked[0] if asked else "", folder=folder))
            done.exit_code = exit_code(lambda: main(asked), verbose=verbose)
            return done.exit_code

        return in_json(lambda answer: work(answer.jobs))


def main(words: Sequence[str]) -> int:
    """Do what the words request. Return the exit code."""
    line = parse(words)
    if line.asks("help") or not words:
        print(usage())
        return 0
    from xdpx.config.user_modules import load_user_modules

    load_user_modules()
    if line.asks("list"):
        return _list(line.words or ([line.exp] if line.exp else []))
    if "pgle" in line.values:  # XLA reads its flags when JAX starts, perhaps on import of the experiment
        with_extra(lambda: _set_pgle(line))
    experiment = with_extra(lambda: _experiment(line))
    looks = [name for name in LOOKS if line.asks(name)]
    if "peek" in line.values:
        return with_extra(lambda: _peek(line, experiment))
    if looks:
        return with_extra(lambda: _look(line, experiment, looks))
    count, restarts = line.values.pop("nproc", 1), line.values.pop("max_restarts", MAX_RESTARTS)
    if count > 1 and get_world_size() == 1:
        _job_log_dir(line)
        return _run_together(words, type(experiment), count, restarts)
    with found_in(type(experiment).__name__):
        return with_extra(lambda: _run(line, experiment))


def check(words: Sequence[str]) -> str:
    """Check the words of an experiment that will run on another machine, and return its job_log_dir.

    Raises:
        ConfigError: the experiment does not exist, its fields are invalid, or job_log_dir is missing.
    """
    line = parse(words)
    with_extra(lambda: _experiment(line))
    return _job_log_dir(line)


def with_extra(work: Callable[[], T]) -> T:
    """Do some work; if JAX or one of its companions is not installed, raise a ConfigError that says how to install it.

    Raises:
        ConfigError: a package is missing.
    """
    try:
        return work()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        fault = Fault("experiments", f"need {error.name}, which is not installed.", "Run: pip install 'xdpx[jax]'.")
        raise ConfigError("xdpx[jax]", [fault]) from error


def _list(words: list[str]) -> int:
    from xdpx.experiments.registry import names

    found = [name for name in names() if all(word.lower() in name.lower() for word in words)]
    for name in found:
        print(name)
    if not found:
        raise ConfigError(
            "command line", [Fault("--list", f"no name contains {' and '.join(words)}.", "Use fewer words.")]
        )
    return 0


def _experiment(line: Line) -> BaseExperiment:
    """Return the experiment with the fields of `--set`. Raises ConfigError if it or one of its fields is invalid."""
    from xdpx.experiments.fields import with_values
    from xdpx.experiments.registry import resolve

    if not line.exp:
        fault = Fault("--exp", "names no experiment.", "Write --exp=NAME; --list shows every name.")
        raise ConfigError("command line", [fault])
    experiment = with_values(resolve(line.exp), line.fields)()
    experiment.validate()
    return experiment


def _set_pgle(line: Line) -> None:
    from xdpx.engines.spmd import pgle

    names = {"pgle_runs": "runs", "pgle_percentile": "percentile", "pgle_strip_pointer": "strip_pointer"}
    knobs = {names[name]: value for name, value in line.values.items() if name in names}
    pgle.apply(pgle.pgle_of(line.values["pgle"], **knobs))


def _peek(line: Line, experiment: BaseExperiment) -> int:
    """Print what one process would read from each input, and anything suspicious about the inputs together."""
    from xdpx.datasets.inputs import peek_inputs

    host, _, count = line.values["peek"].partition("/")
    if not (host.isdecimal() and count.isdecimal() and int(host) < int(count)):
        remedy = "Write I/N with I from 0 to N-1, e.g. --peek=0/4."
        raise ConfigError("command line", [Fault("--peek", f"is '{line.values['peek']}'.", remedy)])
    templates = [*experiment.datasets(), *experiment.decode_datasets()]
    if not templates:
        remedy = "Define datasets() in the experiment."
        raise ConfigError(type(experiment).__name__, [Fault("--peek", "finds no input.", remedy)])
    batches = line.values.get("peek_batches", 1)
    for text in peek_inputs(templates, host=int(host), num_hosts=int(count), num_batches=batches):
        print(text)
    return 0


def _look(line: Line, experiment: BaseExperiment, looks: list[str]) -> int:
    from xdpx.experiments.describing import description

    if "describe" in looks:
        print(description(experiment))
    if looks != ["describe"]:
        _plan(line, experiment, compiling="plan" in looks)
    return 0


def _plan(line: Line, experiment: BaseExperiment, *, compiling: bool) -> None:
    """Plan an experiment. JAX must not be initialised yet, because the number of simulated devices is fixed then."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from xdpx.engines.spmd.peaks import device_named
    from xdpx.engines.spmd.verdict import judge
    from xdpx.experiments.describing import plan_data, plan_text
    from xdpx.experiments.planning import plan_experiment

    device = device_named(line.values["device"]) if "device" in line.values else None
    platform = None if device is None else device.platform
    plan = plan_experiment(experiment, num_devices=line.values.get("devices"), compiling=compiling, platform=platform)
    verdict = None if device is None else judge(plan, device)
    if line.asks("json"):
        print(json.dumps(plan_data(line.exp, experiment, plan, verdict), default=str))
        return
    if not compiling:
        print(_configuration(experiment))
    print(plan_text(f"{type(experiment).__name__}", experiment, plan, verdict))


def _configuration(experiment: BaseExperiment) -> str:
    """Return the resolved Fiddle config of the task as text."""
    import fiddle.printing

    from xdpx.config.hparams import to_fiddle

    text: str = fiddle.printing.as_str_flattened(to_fiddle(experiment.task()))
    return f"{text}\n"


def _run(line: Line, experiment: BaseExperiment) -> int:
    """Run the experiment. Raises ConfigError if the line has no job_log_dir."""
    _job_log_dir(line)
    from xdpx.experiments.running import run, study

    options: dict[str, Any] = {"mode": "train", **line.values}
    options.pop("verbose", None)
    if "study" in options:
        names = {"study": "name", "num_trials": "num_trials", "metrics_from": "metrics_from"}
        asked = {names[name]: options.pop(name) for name in list(names) if name in options}
        search: dict[str, Any] = {name: options.pop(name) for name in ("tuner", "schedule") if name in options}
        return study(experiment, **asked, search=search, **options)
    return run(experiment, **options) or 0


def _run_together(words: Sequence[str], kind: type[BaseExperiment], count: int, restarts: int) -> int:
    """Run an experiment in `count` processes of this machine, and return their exit code.

    A compilation cache lets restarted processes reuse the programs that earlier ones compiled.
    """
    modules = dict.fromkeys(base.__module__ for base in kind.__mro__ if base.__module__.startswith("xdpx."))
    threads = child.threads_of_each(count)
    again = Restarts(restarts, None, (*PRELOADED, *modules) if restarts else (), threads)
    with tempfile.TemporaryDirectory(prefix="xdpx-compiled-") as folder:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        if restarts and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            os.environ |= {"JAX_COMPILATION_CACHE_DIR": folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        return run_together(count, _be_one, tuple(words), threads, restarts=again)


def _be_one(words: Sequence[str], threads: int) -> None:
    """Run as one process of an experiment, and exit with its exit code."""
    child.begin(threads)
    code = exit_code(lambda: main(words), verbose="--verbose" in words)
    leave(code)
    sys.exit(code)


def leave(code: int) -> None:
    """End this process at once if it failed while it trained together with others. See `world.leave`."""
    if code not in {FINISHED, PREEMPTED} and "jax" in sys.modules:
        from xdpx.engines.spmd import world

        world.leave(code)


def _job_log_dir(line: Line) -> str:
    if "job_log_dir" not in line.values:
        remedy = "Write --job_log_dir=DIR, local or remote; or inspect it first: --describe, --dry, --plan."
        raise ConfigError("command line", [Fault("--job_log_dir", "is not given.", remedy)])
    return str(line.values["job_log_dir"])
