"""Index of this task and number of tasks, from the config or the array variables of Slurm or Kubernetes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from xdpx.config.faults import Fault
from xdpx.config.loading import Run
from xdpx.config.parameters import Parameters, param

VARIABLES = {
    "XDPX_TASK_INDEX": "XDPX_NUM_TASKS",
    "SLURM_ARRAY_TASK_ID": "SLURM_ARRAY_TASK_COUNT",
    "JOB_COMPLETION_INDEX": "",
}
"""{variable of the task's index: variable of the number of tasks}: of x-submit, of a Slurm array job, and of an indexed
Job of Kubernetes, which has no second one. The first that is set is used."""

KEYS = ("num_shards", "shard_index")


class ShardParameters(Parameters):
    """Keys that split the work among tasks, which may run on many machines."""

    num_shards: int = param(
        1,
        doc="Tasks that share the work, such as those of an array job: it runs the same command as often; 0: as many "
        "as the array has (Slurm, x-submit).",
        ge=0,
    )
    shard_index: int | None = param(
        None,
        doc="Index of this task, from 0; null: as x-submit, Slurm or Kubernetes numbers the tasks of an array.",
        ge=0,
        when=("num_shards", "is not", 1),
    )


@dataclass(frozen=True)
class Shard:
    """One of `count` tasks; `index` is from 0 to `count` - 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"shard {self.index} of {self.count}"


def shard_of(
    num_shards: int, shard_index: int | None, around: Mapping[str, str] = os.environ
) -> tuple[Shard | None, list[Fault]]:
    """Return (this task, faults); the task is None if the work is not split, or if there are faults.

    The index is the task's own id in the array, from 0, so that single tasks can be submitted again (`--array=3,5`).

    Args:
        num_shards: number of tasks; 0: as many as the array has.
        shard_index: index of this task; None: from the environment.
        around: environment variables.
    """
    if num_shards == 1:
        return None, []
    told = next((name for name in VARIABLES if around.get(name, "").isdecimal()), "")
    tasks = around.get(VARIABLES.get(told, ""), "")
    if num_shards == 0 and not (tasks.isdecimal() and int(tasks)):
        remedy = "Give the number of tasks, e.g. num_shards: 8."
        return None, [Fault("num_shards", "is 0, but this is not a task of an array of known size.", remedy)]
    count = num_shards or int(tasks)
    if shard_index is None and not told:
        problem = f"is missing: none of {', '.join(VARIABLES)} is set here."
        return None, [Fault("shard_index", problem, f"Say which of the {count} tasks this is, from 0.")]
    faults: list[Fault] = []
    if shard_index is None and told.startswith("SLURM"):
        faults += _wrong_array(count, around, asked=num_shards == 0)
    index = int(around[told]) if shard_index is None else shard_index
    if index >= count and not faults:
        source = f"{told} is {index}" if shard_index is None else f"is {index}"
        remedy = f"Tasks are numbered from 0 to {count - 1}."
        faults = [Fault("shard_index", f"{source}, but num_shards is {count}.", remedy)]
    return (None, faults) if faults else (Shard(index, count), [])


def _wrong_array(count: int, around: Mapping[str, str], *, asked: bool) -> Iterator[Fault]:
    """Yield a fault if the tasks of the Slurm array are not numbered 0, 1, 2, ..."""
    tasks, first, last = (around.get(f"SLURM_ARRAY_TASK_{name}", "") for name in ("COUNT", "MIN", "MAX"))
    if not (tasks.isdecimal() and first.isdecimal() and last.isdecimal()):
        return
    whole = int(tasks) == count
    if whole and (first != "0" or int(last) != count - 1):
        problem = f"the {tasks} tasks of this array are numbered from {first} to {last}."
        remedy = f"Submit with --array=0-{count - 1}"
        yield Fault("shard_index", problem, f"{remedy}{', or write num_shards.' if asked else '.'}")


def without_shards(run: Run) -> Run:
    """Return the run with num_shards 1, so that the files written do not depend on the number of tasks."""
    values = {key: value for key, value in run.values.items() if key not in KEYS}
    return replace(run, values={**values, "num_shards": 1}, changed=run.changed - set(KEYS))
