"""What is sent to another place: the commands, what they need there, and the files that do it without XDPX's help."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from xdpx.config.faults import Fault
from xdpx.utils import io

DOOR, EXPERIMENTS_DOOR = "python -m xdpx.run", "python -m xdpx.main"
"""How commands are started where their scripts may not be installed: by a module of the snapshot."""

TOGETHER = frozenset({"x-train", "x-exp"})
"""Commands that all processes of a job do together; the others are done by one process."""

RECORD = "submission.json"
"""In the folder of a submission: what was sent, where to, and under which id."""

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
    hours: float | None = Field(None, gt=0, le=1e5, description="Longest time that the job may take.")
    tasks: int | None = Field(
        None, ge=1, description="Copies of the job, each with XDPX_TASK_INDEX (from 0) and XDPX_NUM_TASKS set."
    )
    partition: str | None = Field(None, description="Slurm: the partition; elsewhere: the queue.")
    account: str | None = Field(None, description="Slurm: who pays.")
    namespace: str | None = Field(None, description="Kubernetes: the namespace.")
    image: str | None = Field(None, description="Container image.")
    volume: str | None = Field(
        None, description="Kubernetes, DLC: claims or data sets and where they are mounted, claim:/folder[,...]."
    )
    secret: str | None = Field(
        None, description="Kubernetes: a Secret whose keys become variables; sky: names of variables to take along."
    )
    runtime: str | None = Field(None, description="Kubernetes: send a TrainJob for this runtime of Kubeflow Trainer.")
    hosts: str | None = Field(None, description="ssh and tpu: machines with commas between, the first leads.")
    workspace: str | None = Field(None, description="DLC: number of the workspace.")
    tensorflow: bool = Field(False, description="PAI: install TensorFlow first.")
    gpu_type: str | None = Field(None, description="Kind of GPU, as the place calls it.")
    tables: str | None = Field(None, description="PAI: tables to read, odps://...")
    pytorch: str | None = Field(None, description="PAI: version of PyTorch, as its platform writes it (180).")
    v100: bool | None = Field(None, description="PAI: whether the GPUs must be V100.")
    address: str | None = Field(None, description="Ray: address of the job server, http://host:8265.")

    @property
    def processes_of_node(self) -> int:
        """How many processes of x-train and x-exp run on each machine."""
        return self.processes or max(1, self.gpus)


@dataclass(frozen=True)
class Step:
    """One command of a job: its words as they were given, such as `("x-train", "a.hjson", "seed=2")`."""

    words: tuple[str, ...]

    @property
    def command(self) -> str:
        """Its first word."""
        return self.words[0]

    @property
    def together(self) -> bool:
        """Whether all processes of the job do it; otherwise one does."""
        return self.command in TOGETHER

    def argv(self, python: str) -> list[str]:
        """Return the words that run it with an interpreter."""
        door, words = (EXPERIMENTS_DOOR, self.words[1:]) if self.command == "x-exp" else (DOOR, self.words)
        return [python, *door.split()[1:], *words]


@dataclass(frozen=True)
class Job:
    """What goes to another place.

    Attributes:
        name: letters, digits, `.`, `_` and `-`; the folder is named after it.
        steps: commands, done in order; the first that fails ends the job.
        resources: what they need.
        workdir: the working directory, where relative paths of configs begin; absolute, as the far side sees it.
        folder: the folder of this submission (`submissions/<name>-<time>`); absolute, as the far side sees it.
        python: the interpreter there.
        environment: variables that the commands need, such as PYTHONPATH with the snapshot of the code.
        runs: how many runs the one command of the job has, which become tasks of an array; 1 where it has one run, or
            where the job has several commands.
    """

    name: str
    steps: tuple[Step, ...]
    resources: Resources
    workdir: str
    folder: str
    python: str = "python"
    environment: Mapping[str, str] = field(default_factory=dict)
    runs: int = 1

    @property
    def num_tasks(self) -> int:
        """How many tasks the job has: one for each run of its config, or as many as were asked for."""
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
    """What a place said when it took a job: its id there, and where its log is (a path, an address or a command)."""

    id: str
    log: str


@dataclass(frozen=True)
class Record:
    """A submission as its folder remembers it (`submission.json`).

    Attributes:
        name: of the folder.
        on: the backend.
        id: as the place calls it.
        log: where its log is.
        folder: here.
        time: when it was sent, ISO 8601.
        command: what was sent, as a line for a shell.
        resources: what was asked for, without what is default.
        git: commit and what is changed since, where the code lies in a repository.
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
mounts; the working directory as it was, in a package; or nothing but the folder of the submission."""


class Backend(Protocol):
    """A place that runs jobs. One file each; `xdpx.launch.backends.BACKENDS` names them.

    `submit`, `status`, `logs` and `cancel` raise `Refused` with what the far side said.
    """

    files_there: Reach
    """What the far side sees of the files of this machine."""

    def faults(self, job: Job) -> Iterable[Fault]:
        """Yield what this place cannot do for a job, and flags that mean nothing to it. Asks nobody."""
        ...

    def hindrances(self, job: Job) -> Iterable[Fault]:
        """Yield what stands in the way of sending from here: a program or package that is not installed."""
        ...

    def files(self, job: Job) -> dict[str, str]:
        """Return {name: text} of the files to write into the job's folder; they run without XDPX's help."""
        ...

    def line(self, job: Job) -> str:
        """Return the line for a shell that sends the written files."""
        ...

    def submit(self, job: Job, folder: str) -> Submitted:
        """Send the job whose files lie in `folder` (here), and return what the place said."""
        ...

    def status(self, record: Record) -> str:
        """Return in a line or more how a submission stands."""
        ...

    def logs(self, record: Record) -> str:
        """Return what a submission has written so far."""
        ...

    def cancel(self, record: Record) -> str:
        """End a submission, and return what was done."""
        ...


class Refused(OSError):
    """A place did not take what was sent: its own words are part of the message."""


def refusal(what: str, words: Sequence[str], said: str, remedy: str) -> Refused:
    """Return the error for a line that failed: what was wanted, the line, what the far side said, what to do."""
    lines = [each for each in said.splitlines() if not each.startswith((" ", "\t", "Traceback"))]  # no stacks of theirs
    told = " ".join(" ".join(lines[-8:] if lines else [said]).split()) or "nothing"
    return Refused(f"{what}: `{shlex.join(words)}` said: {told}. {remedy}")


def given(resources: Resources) -> dict[str, Any]:
    """Return what was asked for, without what is default."""
    return resources.model_dump(exclude_defaults=True)


def unused(resources: Resources, used: Iterable[str], place: str) -> Iterable[Fault]:
    """Yield a fault for each flag that was given and means nothing to a place."""
    known = set(used)
    for name in given(resources):
        if name not in known:
            flag = f"--{name.replace('_', '-')}"
            taken = ", ".join(f"--{each.replace('_', '-')}" for each in sorted(known))
            remedy = f"Leave it out; {place} takes {taken}."
            yield Fault(flag, f"means nothing to {place}.", remedy, code="foreign_key")
