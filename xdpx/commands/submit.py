"""`x-submit <command> <config> ... --on PLACE`: check commands, snapshot the code, and run them on another machine."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from xdpx.commands import chain, command_line, experiment
from xdpx.commands.submit_line import ACTIONS, SubmitLine, parse, resources_of, usage
from xdpx.config.config_files import KEPT_VARIABLE, SUFFIXES, resolve_path
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.hints import shown
from xdpx.config.loading import Run
from xdpx.config.reading import RawRun, read_runs
from xdpx.config.user_modules import PATH_VARIABLE, load_user_modules
from xdpx.launch import folders
from xdpx.launch.backends import BACKENDS
from xdpx.launch.far_side import FarSide
from xdpx.launch.submission import PLATFORM, Backend, Job, JobStep, Launcher, Record, Resources, given
from xdpx.runs.devices import asked_for
from xdpx.runs.snapshot import KEPT
from xdpx.utils import io
from xdpx.utils.progress import format_bytes
from xdpx.utils.redaction import redact

OWN_WORDS = frozenset({"x-exp", "x-io", "x-run", "x-script"})
"""Commands that take words instead of a config."""


def main(argv: Sequence[str]) -> int:
    """Submit commands, or manage submissions. Return the exit code."""
    if not argv or {"-h", "--help"} & set(argv):
        print(usage(list(BACKENDS)))
        return 0
    if argv[0] not in ACTIONS:
        load_user_modules()  # they may define commands, and set credentials
    request = parse(argv, list(BACKENDS))
    if request.action in ACTIONS:
        return _follow(request)
    backend = BACKENDS[request.flags["on"]]
    job, contents = _prepare(request, backend)
    if request.flags.get("dry"):
        _show(job, backend)
        return 0
    hindrances = list(backend.hindrances(job))
    if hindrances:
        raise ConfigError("x-submit", hindrances)
    if not _agreed(request, job):
        return 1
    return _send(request, job, backend, contents)


@dataclass(frozen=True)
class _Contents:
    """Files to include: {path relative to the working directory: file}, and the state of the git repository."""

    configs: dict[str, str]
    git: dict[str, Any]


def _prepare(request: SubmitLine, backend: Backend) -> tuple[Job, _Contents]:
    """Check everything, and return the job with the files to include.

    Raises:
        ConfigError: with the faults of all commands, and of the resources requested.
    """
    jobs = [_job_of(step) for step in request.steps]
    only_there = tuple(path.removeprefix("./") for path in request.flags.get("only-there", []))
    root = request.flags.get("far-root") or (io.abspath(".") if backend.files_there == "mounted" else "")
    far_side = FarSide(backend.files_there == "shared", root, only_there, packed=backend.files_there == "packed")
    wishes, configs = of_configs(jobs)
    resources = resources_of(request.resources, wishes)
    checked = chain.check_line(_started(jobs, backend.launcher, resources), hindrances=[], elsewhere=only_there)
    if backend.launcher == "command":
        resources = _with_own_processes(resources, [run for runs in checked for run in runs or ()])
    job = _job(request, backend, resources, [len(found) for found in checked if found])
    faults = [
        *_about_place(backend, job, wishes.keys() - request.resources.keys()),
        *far_side.faults(run for runs in checked for run in runs or ()),
    ]
    faults += [fault for step in request.steps if step.command == "x-exp" for fault in _of_experiment(step, far_side)]
    if faults:
        raise ConfigError("x-submit", faults)
    _tell(far_side.notes, [run for runs in checked for run in runs or ()])
    return job, _Contents(configs, folders.git_state())


def _started(jobs: Sequence[command_line.Job], launcher: Launcher, resources: Resources) -> list[command_line.Job]:
    """Return the jobs as the place starts them: with nproc, or in processes that something else has started."""
    count, alone = resources.num_processes, len(jobs) == 1 and not resources.tasks
    found = []
    for job in jobs:
        several = count if job.command == "x-train" else 1
        words = [f"nproc={count}"] if launcher == "command" and several > 1 else []
        started = 1 if launcher == "command" else several
        machines = min(started, resources.num_machines)
        there = command_line.Elsewhere(started, machines, launcher == "srun", alone)
        found.append(replace(job, overrides=[*job.overrides, *words], elsewhere=there))
    return found


def _with_own_processes(resources: Resources, runs: Sequence[Run]) -> Resources:
    """Return the resources, with the processes that the configs ask for if no flag gives their number."""
    counts = {asked_for(run.parameters("command")) or 1 for run in runs if run.command == "x-train"}
    if resources.processes is not None or len(counts) != 1:
        return resources
    (count,) = counts
    return resources if count == resources.processes_of_node else resources.model_copy(update={"processes": count})


def _about_place(backend: Backend, job: Job, of_configs: Collection[str]) -> list[Fault]:
    """Return the faults of what the place cannot do. Requests of configs that it does not support are only printed."""
    faults = [*backend.faults(job), *_idle_machines(job)]
    flags = {f"--{name.replace('_', '-')}" for name in of_configs}
    idle = [fault for fault in faults if fault.code == "foreign_key" and fault.key in flags]
    for fault in idle:
        sys.stderr.write(f"{fault.key} of the config {fault.problem}\n")
    return [fault for fault in faults if fault not in idle]


def _idle_machines(job: Job) -> Iterator[Fault]:
    """Yield a fault if all machines but the first would be idle."""
    if job.resources.nodes > 1 and not any(step.together for step in job.steps):
        problem = f"is {job.resources.nodes}, but only one machine would do any work: no command here trains."
        yield Fault("--nodes", problem, "Leave it out; x-prepro is split up by --tasks.", code="foreign_key")


def _job(request: SubmitLine, backend: Backend, resources: Resources, runs: list[int]) -> Job:
    """Return the job of a line; `runs` has the number of runs of each config, if known."""
    name = folders.new_name(request.flags.get("name") or _name_of(request.steps), datetime.now())
    there = request.flags.get("far-root") or io.abspath(".")
    folder = io.join(there, folders.FOLDER, name)
    if len(folder.splitlines()) > 1:  # in a script, a second line would be a directive of its own
        remedy = "Rename the folder, or give its name there with --far-root."
        raise ConfigError("x-submit", [Fault("folder", f"is {shown(there)}, which has several lines.", remedy)])
    python = request.flags.get("python") or (sys.executable if backend.files_there == "shared" else "python")
    array = runs[0] if len(request.steps) == 1 and runs and not resources.tasks else 1
    return Job(name, tuple(request.steps), resources, there, folder, python, _environment(folder), array)


def _of_experiment(step: JobStep, far_side: FarSide) -> list[Fault]:
    """Return the faults of an experiment that can be found on this machine."""
    try:
        place = experiment.check(step.words[1:])
    except ConfigError as error:
        if error.source == "xdpx[jax]":
            far_side.notes.append("x-exp: JAX is not installed here, so the experiment was not checked.")
            return []
        return list(error.faults)
    if "://" in place or place.startswith("/") or far_side.shared or (far_side.root and not far_side.packed):
        return []
    return [
        Fault("--job_log_dir", f"is '{place}', a relative path on a machine that is not kept.", "Name a remote path.")
    ]


def _tell(notes: Sequence[str], runs: Sequence[Run]) -> None:
    for note in notes:
        sys.stderr.write(redact(f"not checked from here: {note}\n"))
    for key in ("overwrite", "auto_suffix"):
        if any(run.command == "x-train" and run.values.get(key) for run in runs):
            sys.stderr.write(f"{key} is true: a job that is interrupted and started again starts from scratch.\n")


def _job_of(step: JobStep) -> command_line.Job:
    """Return a step as a job parsed by the command line of x-train and others."""
    if step.command in OWN_WORDS:
        return command_line.Job(step.command, words=list(step.words[1:]))
    (job,), _ = command_line.parse(step.words)
    return job


def of_configs(jobs: Sequence[command_line.Job]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the resources that configs request, and {path relative to the working directory: file} of configs to keep.

    Raises:
        ConfigError: two runs request different values.
    """
    wishes: dict[str, Any] = {}
    files: dict[str, str] = {}
    faults = []
    for job in jobs:
        files |= _named_files(job.words)
        for raw in _raw_runs(job):
            files |= _named_configs(raw)
            for path in raw.files:
                files |= _kept(path)
            for key, value in raw.platform.items():
                if wishes.setdefault(PLATFORM[key], value) != value:
                    problem = f"is {value} here and {wishes[PLATFORM[key]]} elsewhere on this line."
                    faults.append(Fault(f"__{key}__", problem, "Make them equal, or submit them one by one."))
    if faults:
        raise ConfigError("command line", list(dict.fromkeys(faults)))
    return wishes, files


def _raw_runs(job: command_line.Job) -> list[RawRun]:
    try:
        return list(read_runs(job.config, job.overrides)) if not job.reads_own_words else []
    except ConfigError:  # it needs the output of an earlier command, or its fault was reported before
        return []


def _named_configs(raw: RawRun) -> dict[str, str]:
    """Return the configs named by keys of a run, such as base_config and space_config of x-tune."""
    named = [value for key, value in raw.values.items() if key.endswith("_config") and isinstance(value, str)]
    files: list[str] = []
    for path in named:
        with contextlib.suppress(ConfigError):  # reported by its own command
            files += read_runs(resolve_path(path, beside=raw.source))[0].files
    return {name: file for path in files for name, file in _kept(path).items()}


def _named_files(words: Sequence[str]) -> dict[str, str]:
    """Return the files of code and settings named in words, such as the `my.py:Class` of x-exp."""
    paths = [word.removeprefix("--exp=").partition(":")[0] for word in words]
    found: dict[str, str] = {}
    for path in paths:
        if path.endswith(KEPT) and io.islocal(path) and io.isfile(path):
            found |= _kept(io.abspath(path))
    return found


def _kept(path: str) -> dict[str, str]:
    here = io.abspath(".").rstrip("/") + "/"
    return {path.removeprefix(here): path} if io.islocal(path) and path.startswith(here) else {}


def _name_of(steps: Sequence[JobStep]) -> str:
    words = steps[-1].words
    named = io.name(words[1]) if len(words) > 1 and not words[1].startswith("-") and "=" not in words[1] else words[0]
    return next((named.removesuffix(suffix) for suffix in SUFFIXES if named.endswith(suffix)), named)


def _environment(folder: str) -> dict[str, str]:
    """Return the environment variables with which a job runs the code of its snapshot."""
    code = io.join(folder, "code")
    found = {"PYTHONPATH": code, "PYTHONUNBUFFERED": "1", KEPT_VARIABLE: io.join(code, "configs")}
    if io.isdir("user/modules") or os.environ.get(PATH_VARIABLE):
        found[PATH_VARIABLE] = io.join(code, "user/modules")
    return found


def _show(job: Job, backend: Backend) -> None:
    for name, text in backend.files(job).items():
        print(redact(f"# ---- {job.in_folder(name)}\n{text}"))
    print(redact(f"# ---- sent by\n{backend.line(job)}"))


def _agreed(request: SubmitLine, job: Job) -> bool:
    if request.flags.get("yes") or not sys.stdin.isatty():
        return True
    asked = " ".join(f"{name}={value}" for name, value in given(job.resources).items()) or "defaults"
    sys.stderr.write(f"Send {job.name} to {request.flags['on']} ({asked})? [y/N] ")
    sys.stderr.flush()  # standard output is kept back with --json
    return input().strip().lower() in {"y", "yes"}


def _send(request: SubmitLine, job: Job, backend: Backend, contents: _Contents) -> int:
    """Write the folder, submit the job, and record the id and log that the place returned."""
    folder = io.join(io.abspath("."), folders.FOLDER, job.name)
    size = folders.write_folder(folder, backend.files(job), configs=contents.configs, state=contents.git)
    changed = len(contents.git.get("changed", ()))
    state = f"commit {contents.git['commit'][:10]}, {changed} changed files" if contents.git else "no repository"
    print(f"{folders.FOLDER}/{job.name}: code and configs as they are now ({format_bytes(size)}; {state})")
    sent = backend.submit(job, folder)
    line = shlex.join(word for step in job.steps for word in step.words)
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    where = request.flags["on"]
    record = Record(job.name, where, sent.id, sent.log, folder, now, line, given(job.resources), contents.git)
    folders.write_record(record)
    print(f"sent to {where}: {sent.id}\nlog: {sent.log}\nx-submit status|logs|cancel {sent.id}")
    return 0


def _follow(request: SubmitLine) -> int:
    """Print the status or log of a submission, cancel it, or list all."""
    if request.action == "list":
        for record in folders.records():
            print(f"{record.time}  {record.on}  {record.id}  {record.name}  {record.command}")
        return 0
    record = folders.find(request.id)
    backend = BACKENDS[record.on]
    verbs = {"status": backend.status, "logs": backend.logs, "cancel": backend.cancel}
    print(redact(verbs[request.action](record).rstrip()))
    return 0
