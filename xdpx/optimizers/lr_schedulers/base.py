"""What every schedule of learning rates can answer."""

from __future__ import annotations

import math
from typing import Any

from xdpx.config.parameters import Parameters


class LRScheduler:
    """Decides by which factor of `learning_rate` each update is taken.

    Stateless: every answer depends on the number of the update alone, so nothing has to be saved to resume.
    A subclass nests its `Parameters` and overrides `factor`.
    """

    Parameters = Parameters

    def __init__(self, parameters: Any, *, total_steps: int) -> None:
        self.parameters = parameters
        self.total_steps = total_steps

    def factor(self, num_update: int) -> float:
        """Give the multiple of the learning rate in use for update number `num_update` (1 for the first), in (0, 1]."""
        raise NotImplementedError

    def momentum(self, num_update: int) -> float | None:
        """Give the first Adam beta to use for that update, None to leave it as configured."""
        return None


def ramp(share: float, start: float) -> float:
    """Go in a straight line from `start` at share 0 to 1 at share 1, and stay there."""
    return start + (1.0 - start) * min(max(share, 0.0), 1.0)


def steps_of(count: int | float, total_steps: int) -> int:
    """Turn a number of steps, or a share of all steps when written as a float below 1, into a number of steps."""
    if isinstance(count, float) and count < 1.0:
        return math.floor(count * total_steps + 0.5)
    return int(count)
