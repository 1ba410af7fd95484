"""Check all commands of a line before the first starts, except for faults that an earlier command will cure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from xdpx.commands import batch
from xdpx.commands.command_line import Job
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run, load
from xdpx.config.reading import read_runs
from xdpx.launch.environment import as_launched


@dataclass
class _Promised:
    """What the commands checked so far will write to disk."""

    folders: set[str] = field(default_factory=set)
    unknown: bool = False
    """Whether one of them may write anywhere."""

    def note(self, runs: Iterable[Run]) -> None:
        named = {folder.rstrip("/") for run in runs if (folder := batch.output_folder(run))}
        self.folders |= {folder.removeprefix("./") for folder in named}

    def explains(self, fault: Fault) -> bool:
        """Return whether a fault is about a missing file that an earlier command will write."""
        if self.unknown and fault.code == "missing_path":
            return True
        text = str(fault)
        return any(f"{folder}/" in text or f"'{folder}'" in text for folder in self.folders)


_FOLLOWS = frozenset({"missing_path", "missing_key", "foreign_key", "conflict"})
"""Kinds of faults that may only be consequences of a missing file, such as the metadata of the data."""


BEGINNINGS = ("resume", "overwrite", "auto_suffix")
"""Keys that say what happens to a run that already exists in save_dir."""


def runs_of(job: Job, *, hindrances: list[Fault] | None = None, in_order: bool = True) -> list[Run]:
    """Read and check the runs of one job.

    Args:
        job: the command with its config.
        hindrances: receives the faults that only prevent starting a run, not looking at it; None: they are raised, too.
        in_order: whether a run may read files that runs before it write; never where each is started by itself.

    Raises:
        ConfigError: with every fault.
    """

    def inspect(run: Run) -> Iterable[Fault]:
        if job.only is not None and (job.only != run.index + 1 or batch.has_finished(run)):
            return
        looped = run.total > 1 and batch.has_finished(run)  # of which nothing is looked at
        alone = job.only is not None or (job.elsewhere.each_alone and not looped)
        for fault in batch.inspect(replace(run, total=1) if alone else run):
            if hindrances is not None and fault.code == "occupied":
                hindrances.append(replace(fault, origin=run.origins.get(fault.key)))
            else:
                yield fault

    overrides = [*job.overrides, *_resuming(job)]
    in_order = in_order and job.only is None and not job.elsewhere.each_alone
    there = job.elsewhere
    with as_launched(there.processes, machines=there.machines, by_srun=there.by_srun):
        runs = load(job.config, job.command, overrides, inspect=inspect, in_order=in_order)
    if job.only is None:
        return runs
    if job.only > len(runs):
        fault = Fault("--only", f"is {job.only}, but {job.config} has {len(runs)} runs.", "They are numbered from 1.")
        raise ConfigError("command line", [fault])
    return [runs[job.only - 1]]


def _resuming(job: Job) -> list[str]:
    """Return the override that makes a restarted training resume, unless its config decides that itself."""
    if not job.resumable or job.command != "x-train":
        return []
    raws = [raw.values for raw in read_runs(job.config, job.overrides)]
    decided = any(values.get(key) for values in raws for key in BEGINNINGS)
    return [] if decided or any(values.get("save") is False for values in raws) else ["resume=auto"]


def check_line(
    jobs: list[Job], *, hindrances: list[Fault] | None = None, elsewhere: Iterable[str] = ()
) -> list[list[Run] | None]:
    """Check every job of a line. Return the runs of each; None if it has no config, or must wait for earlier jobs.

    Args:
        jobs: the commands.
        hindrances: as for `runs_of`.
        elsewhere: paths that exist on the machine where the jobs will run, and may be missing here.

    Raises:
        ConfigError: with the faults of all jobs that no earlier job can cure.
    """
    promised = _Promised({path.rstrip("/").removeprefix("./") for path in elsewhere})
    checked: list[list[Run] | None] = []
    errors: list[ConfigError] = []
    for job in jobs:
        runs = None
        if not job.reads_own_words:
            try:
                runs = runs_of(job, hindrances=hindrances)
            except ConfigError as error:
                errors.extend(_certain(error.placed(job.source, {}), promised))
        promised.note(runs or [])
        promised.unknown |= runs is None and job.command != "x-check"  # which writes nothing
        checked.append(runs)
    if errors:
        raise joined(errors)
    return checked


def _certain(error: ConfigError, promised: _Promised) -> list[ConfigError]:
    """Leave out the faults that an earlier command will cure, and those that follow from them."""
    causes = [fault for fault in error.faults if promised.explains(fault)]
    if not causes:
        return [error]
    certain = [fault for fault in error.faults if fault not in causes and fault.code not in _FOLLOWS]
    return [ConfigError(error.source, certain)] if certain else []


def joined(errors: list[ConfigError]) -> ConfigError:
    """Join several errors into one, each fault prefixed with its config."""
    if len(errors) == 1:
        return errors[0]
    faults = [
        Fault(f"{error.source}: {fault.key}", fault.problem, fault.remedy, fault.origin)
        for error in errors
        for fault in error.faults
    ]
    return ConfigError("command line", faults)
