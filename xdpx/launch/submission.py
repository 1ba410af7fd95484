"""A submission: commands, the resources they need, and the interface of the backends that run them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from xdpx.config.faults import Fault
from xdpx.utils import io

DOOR, EXPERIMENTS_DOOR = "python -m xdpx.run", "python -m xdpx.main"
"""Modules that start commands where the console scripts may not be installed."""

TOGETHER = frozenset({"x-train", "x-exp"})
"""Commands that run in all processes of a job; others run in one process."""

RECORD = "submission.json"
"""File in the folder of a submission: what was sent, to which backend, under which id."""

PLATFORM = {"gpu": "gpus", "cpu": "cpus", "memory": "memory", "worker": "nodes", "pytorch": "pytorch", "v100": "v100"}
"""{key of a config without its underscores: the field of `Resources` that it sets}."""


class Resources(BaseModel):
    """What a job asks of the place it goes to. Every field is a flag of x-submit (`far_root`: `--far-root`).

    A backend refuses what it cannot give; it ignores nothing that was given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    nodes: int = Field(1, ge=1, description="Machines (Slurm nodes, pods, workers).")
    gpus: int = Field(0, ge=0, description="GPUs on each machine.")
    processes: int | None = Field(None, ge=1, description="Processes on each machine; default: one for each GPU, or 1.")
    cpus: int | None = Field(None, ge=1, description="CPU cores on each machine.")
    memory: float | None = Field(None, ge=0.1, le=1e5, description="Memory of each machine, in GiB.")
    hours: float | None = Field(None, gt=0, le=1e5, description="Time limit of the job.")
    tasks: int | None = Field(
        None, ge=1, description="Copies of the job, each with XDPX_TASK_INDEX (from 0) and XDPX_NUM_TASKS set."
    )
    partition: str | None = Field(None, description="Slurm: the partition; elsewhere: the queue.")
    account: str | None = Field(None, description="Slurm: the account to charge.")
    namespace: str | None = Field(None, description="Kubernetes: the namespace.")
    image: str | None = Field(None, description="Container image.")
    volume: str | None = Field(
        None, description="Kubernetes, DLC: claims or data sets and their mount points, claim:/folder[,...]."
    )
    secret: str | None = Field(
        None, description="Kubernetes: a Secret whose keys become variables; sky: names of variables to pass on."
    )
    runtime: str | None = Field(None, description="Kubernetes: submit a TrainJob for this runtime of Kubeflow Trainer.")
    hosts: str | None = Field(None, description="ssh and tpu: machines, separated by commas; the first is the leader.")
    workspace: str | None = Field(None, description="DLC: number of the workspace.")
    tensorflow: bool = Field(False, description="PAI: install TensorFlow first.")
    gpu_type: str | None = Field(None, description="GPU type, as the platform calls it.")
    tables: str | None = Field(None, description="PAI: tables to read, odps://...")
    pytorch: str | None = Field(None, description="PAI: version of PyTorch, as its platform writes it (180).")
    v100: bool | None = Field(None, description="PAI: whether the GPUs must be V100.")
    address: str | None = Field(None, description="Ray: address of the job server, http://host:8265.")

    @property
    def processes_of_node(self) -> int:
        """How many processes of x-train and x-exp run on each machine."""
        return self.processes or max(1, self.gpus)

    @property
    def host_names(self) -> list[str]:
        """The machines of --hosts, the leader first."""
        return [host.strip() for host in (self.hosts or "").split(",") if host.strip()]

    @property
    def num_machines(self) -> int:
        """How many machines there are."""
        return max(self.nodes, len(self.host_names))

    @property
    def num_processes(self) -> int:
        """How many processes of x-train there are on all machines."""
        return self.num_machines * self.processes_of_node


@dataclass(frozen=True)
class JobStep:
    """One command of a job: its words as they were given, such as `("x-train", "a.hjson", "seed=2")`."""

    words: tuple[str, ...]

    @property
    def command(self) -> str:
        """The first word."""
        return self.words[0]

    @property
    def together(self) -> bool:
        """Whether all processes of the job run it; otherwise one does."""
        return self.command in TOGETHER

    def argv(self, python: str) -> list[str]:
        """Return the command line that runs it with the given interpreter."""
        door, words = (EXPERIMENTS_DOOR, self.words[1:]) if self.command == "x-exp" else (DOOR, self.words)
        return [python, *door.split()[1:], *words]


@dataclass(frozen=True)
class Job:
    """A job to run in another place.

    Attributes:
        name: letters, digits, `.`, `_` and `-`; also the name of the folder.
        steps: commands, run in order; the first that fails ends the job.
        resources: that they need.
        workdir: the working directory, to which paths in configs are relative; absolute, as the far side sees it.
        folder: the folder of this submission (`submissions/<name>-<time>`); absolute, as the far side sees it.
        python: the interpreter there.
        environment: variables that the commands need, such as PYTHONPATH with the snapshot of the code.
        runs: number of runs of the config of a job with one command, which become tasks of an array; 1 for a job
            with several commands.
    """

    name: str
    steps: tuple[JobStep, ...]
    resources: Resources
    workdir: str
    folder: str
    python: str = "python"
    environment: Mapping[str, str] = field(default_factory=dict)
    runs: int = 1

    @property
    def num_tasks(self) -> int:
        """Number of tasks of the job: as given by --tasks, else one for each run of its config."""
        return self.resources.tasks or self.runs

    @property
    def code(self) -> str:
        """The folder of the snapshot: `xdpx/`, `user/modules/`, and configs by their paths below `workdir`."""
        return io.join(self.folder, "code")

    def in_folder(self, name: str) -> str:
        """Return the path of a file of this submission, as the far side sees it."""
        return io.join(self.folder, name)


@dataclass(frozen=True)
class Submitted:
    """The answer of a place that accepted a job: its id, and where its log is (a path, an address or a command)."""

    id: str
    log: str


@dataclass(frozen=True)
class Record:
    """A submission as recorded in its folder (`submission.json`).

    Attributes:
        name: of the folder.
        on: the backend.
        id: of the job at that place.
        log: where its log is.
        folder: on this machine.
        time: when it was sent, ISO 8601.
        command: what was sent, as a shell command line.
        resources: those requested, without defaults.
        git: commit and changed files, if the code is in a repository.
    """

    name: str
    on: str
    id: str
    log: str
    folder: str
    time: str
    command: str
    resources: Mapping[str, Any] = field(default_factory=dict)
    git: Mapping[str, Any] = field(default_factory=dict)


Reach = Literal["shared", "mounted", "packed", "apart"]
"""Files of this machine that the far side sees: all, under the same paths; the working directory, on a volume that it
mounts; a packed copy of the working directory; or only the folder of the submission."""

Launcher = Literal["command", "srun", "script"]
"""What starts processes of x-train: the command itself (nproc), srun, or our script with the variables of torchrun."""


class Backend(Protocol):
    """A place that runs jobs. One file each; `xdpx.launch.backends.BACKENDS` lists them.

    `submit`, `status`, `logs` and `cancel` raise `Refused` with the message of the far side.
    """

    files_there: Reach
    """Which files of this machine the far side sees."""

    launcher: Launcher
    """What starts several processes of x-train there."""

    def faults(self, job: Job) -> Iterable[Fault]:
        """Yield requirements that this place cannot meet, and flags it does not use. Contacts no other machine."""
        ...

    def hindrances(self, job: Job) -> Iterable[Fault]:
        """Yield what prevents submitting from this machine: e.g. a program or package that is not installed."""
        ...

    def files(self, job: Job) -> dict[str, str]:
        """Return {name: text} of the files to write into the job's folder; they can be used without x-submit."""
        ...

    def line(self, job: Job) -> str:
        """Return the shell command that submits the written files."""
        ...

    def submit(self, job: Job, folder: str) -> Submitted:
        """Submit the job whose files are in the local `folder`, and return its id and log."""
        ...

    def status(self, record: Record) -> str:
        """Return the state of a submission, in one or more lines."""
        ...

    def logs(self, record: Record) -> str:
        """Return the log of a submission so far."""
        ...

    def cancel(self, record: Record) -> str:
        """Cancel a submission, and return a line that says what was done."""
        ...


class Refused(OSError):
    """A place refused a request or did not answer; the message contains its own words."""


def refusal(what: str, words: Sequence[str], said: str, remedy: str) -> Refused:
    """Return the error for a failed command: its purpose, the command, the answer of the far side, and what to do."""
    lines = [each for each in said.splitlines() if not each.startswith((" ", "\t", "Traceback"))]  # no tracebacks
    told = " ".join(" ".join(lines[-8:] if lines else [said]).split()) or "nothing"
    return Refused(f"{what}: `{shlex.join(words)}` said: {told}. {remedy}")


def given(resources: Resources) -> dict[str, Any]:
    """Return the resources that differ from the defaults."""
    return resources.model_dump(exclude_defaults=True)


def unused(resources: Resources, used: Iterable[str], place: str) -> Iterable[Fault]:
    """Yield a fault for each given flag that a place does not use."""
    known = set(used)
    for name in given(resources):
        if name not in known:
            flag = f"--{name.replace('_', '-')}"
            taken = ", ".join(f"--{each.replace('_', '-')}" for each in sorted(known))
            remedy = f"Leave it out; {place} accepts {taken}."
            yield Fault(flag, f"is not supported by {place}.", remedy, code="foreign_key")
