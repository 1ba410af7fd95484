"""What processes that train together import: once, by the process that they are forked off."""

from __future__ import annotations

import gc
from importlib import import_module

SHARDING = ("torch._dynamo", "torch.distributed.checkpoint", "torch.utils.serialization",
            "xdpx.engines.pytorch.strategies.sharded")  # fmt: skip
"""Imported by each process of several that train, most of it by torch: a second and a half each."""
SAVING = ("transformers.modeling_utils",)
"""Imported by the Trainer's first process when it saves: another second."""


def import_before_forking(*modules: str) -> None:
    """Import modules, and leave them out of garbage collections, which would copy them."""
    gc.disable()  # what is imported stays: collecting meanwhile takes a sixth of the time
    for module in modules:
        import_module(module)
    gc.enable()
    gc.collect()
    gc.freeze()
