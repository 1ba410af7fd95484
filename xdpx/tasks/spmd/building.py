"""Build the engine that computes a run of x-train on JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import jax
from jax.sharding import Mesh

from xdpx.config.faults import first_line, refusal
from xdpx.config.loading import Run
from xdpx.config.spmd_keys import REST
from xdpx.engines.base import ReadWeights, Schedule
from xdpx.engines.spmd.mesh import make_mesh
from xdpx.engines.spmd.paired import Pair, PairedEngine, PairedOptions
from xdpx.models.spmd.sharding import TRANSFORMER_RULES
from xdpx.tasks.spmd.paired import pair_with

KINDS = ("model", "loss", "optimizer")


def build_engine(
    run: Run,
    make_task: Callable[[], Any],
    *,
    seed: int,
    cuda: bool | None,
    read_weights: ReadWeights,
    schedule: Schedule | None = None,
    trains: bool = True,
) -> PairedEngine:
    """Return an engine; nothing is allocated on the devices yet.

    Args:
        run: of x-train.
        make_task: builds its task on PyTorch.
        seed: decides all randomness.
        cuda: whether to use GPUs; None: JAX's default devices.
        read_weights: reads pretrained weights safely.
        schedule: of learning rates.
        trains: False for an engine that only scores.

    Raises:
        ConfigError: there are no such devices, or they do not fill the mesh.
    """
    values = run.values
    names = {kind: run.picks["", kind] for kind in KINDS}
    learning = {"clip_norm": values["clip_norm"], "ema_decay": values["ema_decay"], "sizes": values["inspect_gradient"]}

    def pair(host: Any) -> Pair:
        if not trains:
            return pair_with(host, names, bf16=values["bf16"])
        groups = host.model.parameter_groups(values["learning_rate"])
        return pair_with(
            host, names, optimizer=run.parameters("optimizer"), groups=groups, bf16=values["bf16"], **learning
        )

    return PairedEngine(
        make_task,
        pair,
        mesh=mesh_of(values, cuda=cuda),
        rules=TRANSFORMER_RULES,
        options=PairedOptions(
            seed=seed,
            batch_size=values["batch_size"],
            precision=None if values["bf16"] else "highest",  # as PyTorch computes, also where less is the custom
            ema_decay=values["ema_decay"],
        ),
        schedule=schedule,
        read_weights=read_weights,
    )


def mesh_of(values: Mapping[str, Any], *, cuda: bool | None) -> Mesh:
    """Return the mesh of this process's devices, as `mesh` says; by default, batches are split over all of them.

    Raises:
        ConfigError: there are no such devices, or their number does not fit the mesh.
    """
    devices = _devices(cuda)
    sizes: Sequence[int] = values.get("mesh") or [len(devices), 1, 1]
    known = prod(size for size in sizes if size != REST)
    fits = len(devices) % known == 0 if REST in sizes else len(devices) == known
    if not fits:
        problem = f"is {list(sizes)}, {known} devices{' or a multiple' * (REST in sizes)}; there are {len(devices)}."
        remedy = f"Use three numbers whose product is {len(devices)}, one of which may be -1."
        raise refusal("mesh", problem, remedy)
    return make_mesh(sizes, devices=devices)


def _devices(cuda: bool | None) -> list[Any]:
    kind = None if cuda is None else "cuda" if cuda else "cpu"
    try:
        return list(jax.local_devices(backend=kind))
    except RuntimeError as error:
        problem = f"is {str(cuda).lower()}, but jax has no device '{kind}' here: {first_line(error)}"
        raise refusal("cuda", problem, "Leave it out to use what there is.") from error
