"""Callbacks as in the Hugging Face Trainer: the state they read, the events, the built-in ones.

`x-train` finds those in its `callbacks` by the names of this registry, to which `@register("mine")` adds a user's own.
"""

from typing import Any

from xdpx.config.registry import Registry

callbacks: Registry[Any] = Registry(
    "callback",
    {
        "early_stopping": "xdpx.trainer.hooks.builtin:EarlyStoppingCallback",
        "freeze": "xdpx.tasks.fine_tuning:Freezing",
        "jsonl": "xdpx.reports.trackers.json_lines:JsonLines",
        "neftune": "xdpx.tasks.fine_tuning:NoisyEmbeddings",
        "printer": "xdpx.trainer.hooks.builtin:PrinterCallback",
        "tensorboard": "xdpx.reports.trackers.tensorboard:TensorBoardCallback",
    },
    classes=False,
)
register = callbacks.register
