"""How many processes train together, and which settings they cannot use; checked before anything is built."""

from __future__ import annotations

import os
from collections.abc import Iterator

from xdpx.checkpoints.folders import ALONE, Ranks
from xdpx.config.faults import Fault
from xdpx.config.loading import Run
from xdpx.config.spmd_keys import SPMD
from xdpx.logger import log
from xdpx.runs.parameters import TrainParameters
from xdpx.utils.distributed_utils import barrier, broadcast_object, gather_objects, get_world_size, is_master

TAKE_SHARES = frozenset({"adafactor", "adagrad", "adam", "adamw_torch", "adamw_torch_fused", "lamb", "rmsprop", "sgd"})
"""Optimizers that are tested to give the same result on shards of a weight as on the whole."""


ACCELERATE = {
    "MIXED_PRECISION": "bf16: true (or fp16)",
    "USE_FSDP": "strategy: fsdp",
    "USE_DEEPSPEED": "strategy: deepspeed",
    "DYNAMO_BACKEND": "compile: true",
}
"""What `accelerate launch` says in variables of these names, and the keys that say it here."""


def join(settings: TrainParameters) -> Ranks:
    """Join the processes that a launcher has started, and return their `Ranks`. On all processes."""
    if is_master():
        _tell_of_accelerate(settings)
    if get_world_size() == 1:
        return ALONE
    from xdpx.engines.pytorch import world

    here = world.current(use_cpu=settings.cuda is False)
    return Ranks(here.rank, here.size, here.local_rank, barrier, broadcast_object, gather_objects)


def _tell_of_accelerate(settings: TrainParameters) -> None:
    """Warn of what `accelerate launch` was configured to do beyond starting processes: here the keys decide."""
    said = {name: os.environ.get(f"ACCELERATE_{name}", "").lower() for name in ACCELERATE}
    of_run = {
        "MIXED_PRECISION": settings.precision,
        "USE_FSDP": str(settings.strategy == "fsdp").lower(),
        "USE_DEEPSPEED": str(settings.strategy == "deepspeed").lower(),
        "DYNAMO_BACKEND": "inductor" if settings.compile else "no",
    }
    aside = [name for name, word in said.items() if word not in {"", "no", "false", of_run[name]}]
    if aside:
        theirs = ", ".join(f"{name.lower()} {said[name]}" for name in aside)
        keys = ", ".join(ACCELERATE[name] for name in aside)
        log.warning(f"accelerate launch: {theirs} has no effect on x-train. Write {keys} in its config.")


def asked_for(settings: TrainParameters) -> int:
    """Return how many processes the config asks for; 0 if it leaves that to the number of visible GPUs."""
    if settings.nproc is not None:
        return settings.nproc
    return settings.distributed_world_size if isinstance(settings.distributed_world_size, int) else 0


def processes_to_start(run: Run, settings: TrainParameters) -> int:
    """Return how many processes to start when no launcher did: as configured, or one for each visible GPU."""
    asked = asked_for(settings)
    if asked or settings.engine == SPMD or settings.cuda is False or settings.device_id != "auto":
        return asked or 1
    import torch

    visible = torch.cuda.device_count()
    if visible < 2:
        return 1
    found = next(faults_of(run, settings, visible), None)
    if found is not None:
        log.info(f"{visible} GPUs are visible, but only one is used, because {found.key} {found.problem}")
        return 1
    return visible


def faults_of(run: Run, settings: TrainParameters, count: int) -> Iterator[Fault]:
    """Yield a fault for each setting that does not work with `count` processes."""
    if count < 2:
        return
    if settings.engine == SPMD:
        problem = f"is spmd, which uses all devices in one process, but there are {count} processes."
        yield Fault("engine", problem, "Leave nproc out (mesh says how devices share), or use engine: pytorch.")
        return
    sampler = run.build("sampler")
    unit = sampler.unit_size
    if settings.batch_size < count * unit:
        together = f" of {unit} samples that belong together" if unit > 1 else ""
        problem = f"is {settings.batch_size}, over all devices: some of {count} processes get no samples{together}."
        yield Fault("batch_size", problem, f"Use at least {count * unit}, or fewer processes (nproc).")
    split = settings.data_size.get(settings.valid_subset, settings.batch_size * count)
    if settings.use_bmuf and (min(-(-split // settings.batch_size), settings.max_eval_steps or count)) < count:
        problem = f"is true, but '{settings.valid_subset}' has fewer batches than there are processes ({count})."
        yield Fault("use_bmuf", problem, "Use fewer processes (nproc), a smaller batch_size, or more held-out data.")
    if settings.shares_weights:
        yield from _unshared(run, settings)
    if any(kind == "optimizer" and name == "sparse_adam" for (_, kind), name in run.picks.items()):
        yield Fault("optimizer", f"is 'sparse_adam', whose gradients {count} processes cannot sum.", "Use adam.")
    loss = run.picked("loss")
    if loss.compares_rows and not loss.spans_processes:
        problem = (
            f"is '{run.values['loss']}', which compares the rows of a batch: "
            f"split over {count} processes it is a different loss."
        )
        yield Fault("loss", problem, "Set nproc: 1, or device_id to use one GPU.")


def _unshared(run: Run, settings: TrainParameters) -> Iterator[Fault]:
    """Yield a fault for each setting that does not work with sharded weights, where all run the model in lockstep."""
    how = settings.strategy if settings.strategy == "fsdp" else f"deepspeed, stage {settings.deepspeed_zero_stage}"
    remedy = "Leave it out, or use strategy: ddp."
    if settings.auto_ga:
        problem = f"is true, but with strategy {how} a process cannot split its share of a batch on its own."
        yield Fault("auto_ga", problem, remedy)
    if settings.compile:
        yield Fault("compile", f"is true, but strategy {how} gathers weights outside of what is compiled.", remedy)
    if settings.inspect_gradient:
        problem = f"is true, but with strategy {how} no process has the full gradients that it records."
        yield Fault("inspect_gradient", problem, remedy)
    if not run.picked("task").may_share_weights:
        problem = f"is '{settings.task}', which reads weights outside of passes, where strategy {how} only has shards."
        yield Fault("task", problem, "Use strategy: ddp.")
    for (prefix, kind), name in run.picks.items():
        if kind == "optimizer" and name not in TAKE_SHARES:
            allowed = f"Use strategy: ddp, or one of: {', '.join(sorted(TAKE_SHARES))}."
            problem = f"is '{name}', which may treat a shard of a weight unlike the whole weight (strategy {how})."
            yield Fault(f"{prefix}{kind}", problem, allowed)
