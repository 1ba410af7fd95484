"""Which modules every run of a search imports, so that one process imports them for all."""

from __future__ import annotations

from xdpx.config.loading import Run
from xdpx.config.registry import registry_of
from xdpx.config.spmd_keys import SPMD

ALWAYS = (
    "torch", "torch.distributed", "torch._dynamo", "xdpx.runs.training", "xdpx.runs.assembly", "xdpx.tuning.stages",
    "xdpx.checkpoints.trusted",
)  # fmt: skip
WITH_PYTORCH = (
    "xdpx.engines.pytorch.engine", "xdpx.engines.pytorch.world", "xdpx.optimizers.pytorch.building",
    "xdpx.models.pytorch.bert", "xdpx.models.pytorch.library_form", "xdpx.models.pytorch.preparing",
    "transformers.modeling_utils", "transformers.models.auto.modeling_auto",
)  # fmt: skip
"""Beside what every training imports at its start: what it imports on its way, which takes longest."""


def modules_of(run: Run) -> list[str]:
    """Return the modules to import, those of the classes that the run picks among them. JAX is left to each."""
    picked = []
    for (_, kind), name in run.picks.items():
        target = registry_of(kind).shipped.get(name, "")
        picked.append(target.partition(":")[0])
    engine = () if run.values.get("engine") == SPMD else WITH_PYTORCH
    return list(dict.fromkeys([*ALWAYS, *engine, *filter(None, picked)]))
