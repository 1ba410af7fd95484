"""A straight warm-up, then one learning rate."""

from __future__ import annotations

from xdpx.config import parameters as declare
from xdpx.optimizers.lr_schedulers.base import LRScheduler, ramp


class WarmupConstant(LRScheduler):
    """From learning_rate / div_factor in a straight line to learning_rate after `warmup_steps` updates."""

    class Parameters(declare.Parameters):
        """How the warm-up goes."""

        warmup_steps: int = declare.param(
            0, ge=0, relative="inverse", doc="Updates until the full learning rate is reached.", group="optimization"
        )
        div_factor: float = declare.param(
            25.0, ge=1, doc="The warm-up starts from learning_rate divided by this.", group="optimization"
        )

    parameters: Parameters

    def factor(self, num_update: int) -> float:
        """Give 1/div_factor before the first update, 1 from update `warmup_steps` on."""
        steps = self.parameters.warmup_steps
        return ramp(num_update / steps, 1.0 / self.parameters.div_factor) if steps else 1.0
