"""What a training imports, for a process that imports it once and is then forked for each training."""

from __future__ import annotations

from xdpx.config.loading import Run
from xdpx.config.registry import registry_of
from xdpx.config.spmd_keys import SPMD

ALWAYS = (
    "xdpx.utils.rarely_collected", "torch", "torch.distributed", "xdpx.runs.training", "xdpx.runs.assembly",
    "xdpx.runs.packed_ahead", "xdpx.checkpoints.trusted",
)  # fmt: skip
OF_PYTORCH = (
    "xdpx.engines.pytorch.engine", "xdpx.engines.pytorch.world", "xdpx.optimizers.pytorch.building",
    "xdpx.models.pytorch.preparing",
)  # fmt: skip
COMPILER = "torch._dynamo"
"""Takes a second; imported by `torch.compile`, by strategies that share out weights, and by Transformers."""
OF_TRANSFORMERS = ("xdpx.models.pytorch.bert", "transformers.modeling_utils", "transformers.models.auto.modeling_auto")
"""Take two seconds."""


def modules_of(run: Run) -> list[str]:
    """Return the modules that a training imports, including those it imports late; none of them uses a device.

    Those of the classes that it selects import what these need, such as Transformers. What a user's own class needs is
    not known, so all of it is returned for that. JAX is not.
    """
    homes = [registry_of(kind).shipped.get(name, "").partition(":")[0] for (_, kind), name in run.picks.items()]
    found = [*ALWAYS]
    if run.values.get("engine") != SPMD:
        found += OF_PYTORCH
        if run.values.get("compile") or run.values.get("strategy", "ddp") != "ddp":
            found.append(COMPILER)
        if not all(homes):
            found += [COMPILER, *OF_TRANSFORMERS]
    return list(dict.fromkeys([*found, *filter(None, homes)]))
