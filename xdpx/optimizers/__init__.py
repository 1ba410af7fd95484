"""Update rules: from gradients to new weights."""

from typing import Any

from xdpx.config.registry import Registry

optimizers: Registry[Any] = Registry(
    "optimizer",
    {
        "adam": "xdpx.optimizers.pytorch.adam:Adam",
        "lamb": "xdpx.optimizers.pytorch.lamb:Lamb",
    },
)
register = optimizers.register
