"""A straight warm-up, then decay by a constant factor in stairs."""

from __future__ import annotations

from xdpx.config import parameters as declare
from xdpx.optimizers.lr_schedulers.base import LRScheduler, ramp


class ExponentialDecay(LRScheduler):
    """After the warm-up the rate is multiplied by `decay_rate` after every `decay_steps` updates."""

    class Parameters(declare.Parameters):
        """How the warm-up and the decay go."""

        warmup_steps: int = declare.param(
            0, ge=0, relative="inverse", doc="Updates until the full learning rate is reached.", group="optimization"
        )
        decay_rate: float = declare.param(
            0.95, gt=0, le=1, doc="Factor on the learning rate at each stair.", group="optimization"
        )
        decay_steps: int = declare.param(
            1000,
            gt=0,
            relative="inverse",
            doc="Updates on each stair, counted from the end of the warm-up.",
            group="optimization",
        )
        div_factor: float = declare.param(
            25.0, ge=1, doc="The warm-up starts from learning_rate divided by this.", group="optimization"
        )

    parameters: Parameters

    def factor(self, num_update: int) -> float:
        """Give decay_rate ** floor((num_update - warmup_steps) / decay_steps) after the warm-up."""
        known = self.parameters
        if num_update < known.warmup_steps:
            return ramp(num_update / known.warmup_steps, 1.0 / known.div_factor)
        return known.decay_rate ** ((num_update - known.warmup_steps) // known.decay_steps)
