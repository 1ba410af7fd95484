"""One learning rate from the first update to the last."""

from __future__ import annotations

from xdpx.optimizers.lr_schedulers.base import LRScheduler


class Constant(LRScheduler):
    """Always the configured learning rate."""

    def factor(self, num_update: int) -> float:
        """Give 1."""
        return 1.0
