"""Learning rate schedules: pure functions of the number of updates, without torch."""

from typing import Any

from xdpx.config.registry import Registry

lr_schedulers: Registry[Any] = Registry(
    "lr_scheduler",
    {
        "constant": "xdpx.optimizers.lr_schedulers.constant:Constant",
        "exponential_decay": "xdpx.optimizers.lr_schedulers.exponential_decay:ExponentialDecay",
        "one_cycle": "xdpx.optimizers.lr_schedulers.one_cycle:OneCycle",
        "warmup_constant": "xdpx.optimizers.lr_schedulers.warmup_constant:WarmupConstant",
    },
)
register = lr_schedulers.register
