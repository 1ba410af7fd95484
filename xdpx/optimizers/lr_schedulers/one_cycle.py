"""Up and down once: the one-cycle policy."""

from __future__ import annotations

import math
from typing import Literal

from xdpx.config import parameters as declare
from xdpx.optimizers.lr_schedulers.base import LRScheduler, steps_of


class OneCycle(LRScheduler):
    """From learning_rate / div_factor up to learning_rate and back, reached again at the last update.

    The same curve is used on the way up and on the way down. With `cycle_momentum` the first Adam beta goes the
    other way: from its configured value down to `base_momentum` at the top and back.

    Source: Smith and Topin, "Super-Convergence" (2018), section 3, with one curve of our choice for both ways.
    """

    class Parameters(declare.Parameters):
        """The shape of the cycle."""

        warmup_steps: int | float = declare.param(
            0,
            ge=0,
            relative="inverse",
            group="optimization",
            doc="Updates on the way up; a float below 1 is a share of all updates.",
        )
        anneal_strategy: Literal["linear", "cosine", "polynomial"] = declare.param(
            "linear", doc="Curve of the way up and of the way down.", group="optimization"
        )
        anneal_p: float = declare.param(
            1.0,
            gt=0,
            doc="Power of the polynomial curve.",
            when=("anneal_strategy", "is", "polynomial"),
            group="optimization",
        )
        div_factor: float = declare.param(
            600.0, ge=1, doc="The cycle starts and ends at learning_rate divided by this.", group="optimization"
        )
        cycle_momentum: bool = declare.param(
            False, doc="Let the first Adam beta go down and up against the learning rate.", group="optimization"
        )
        base_momentum: float = declare.param(
            0.85,
            ge=0,
            lt=1,
            doc="Lowest first beta, at the highest learning rate.",
            when=("cycle_momentum", "is", True),
            group="optimization",
        )
        adam_betas: list[float] = declare.param(
            [0.9, 0.999], doc="Decay of the running means of the gradient and of its square.", group="optimization"
        )

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse a broken number of steps."""
            if self.warmup_steps < 1 or float(self.warmup_steps).is_integer():
                return []
            return [("warmup_steps", f"is {self.warmup_steps}. Use a whole number, or a share of all updates below 1.")]

    parameters: Parameters

    def factor(self, num_update: int) -> float:
        """Give a value in [1/div_factor, 1]."""
        low = 1.0 / self.parameters.div_factor
        return low + (1.0 - low) * self.height(num_update)

    def momentum(self, num_update: int) -> float | None:
        """Give a value between adam_betas[0] (at the ends) and base_momentum (at the top)."""
        if not self.parameters.cycle_momentum:
            return None
        high, low = self.parameters.adam_betas[0], self.parameters.base_momentum
        return high - (high - low) * self.height(num_update)

    def height(self, num_update: int) -> float:
        """Give how far up the curve is: 0 at update 0 and at the last one, 1 at the end of the warm-up."""
        top = min(steps_of(self.parameters.warmup_steps, self.total_steps), self.total_steps)
        if num_update < top:
            return self.curve(num_update / top)
        rest = self.total_steps - top
        return self.curve(max(self.total_steps - num_update, 0) / rest) if rest else 1.0

    def curve(self, share: float) -> float:
        """Map a share of the way up to a height, both in [0, 1]."""
        if self.parameters.anneal_strategy == "cosine":
            return (1.0 - math.cos(math.pi * share)) / 2.0
        power = self.parameters.anneal_p if self.parameters.anneal_strategy == "polynomial" else 1.0
        return float(share**power)
