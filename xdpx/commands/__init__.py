"""What a user can ask for: one thin file per command, which parses, builds and calls."""

from typing import Any

from xdpx.config.registry import Registry

commands: Registry[Any] = Registry(
    "command",
    {
        "x-eval": "xdpx.commands.evaluate:Evaluate",
        "x-pred": "xdpx.commands.predict:Predict",
        "x-prepro": "xdpx.commands.prepro:Prepro",
        "x-train": "xdpx.commands.train:Train",
        "x-viz": "xdpx.commands.visualise:Visualise",
    },
)
register = commands.register
