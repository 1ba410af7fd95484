"""Which of a model's losses is minimised: one of them, or several together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdpx.config.faults import did_you_mean, refusal
from xdpx.config.hparams import BaseHParams, Configurable

Metrics = Mapping[str, tuple[Any, Any]]
"""(mean, weight) by name, as a model gives them."""


TOTAL = "total_loss"
"""What a model calls the loss that has everything in it, also what layers add."""


class LossAggregator(Configurable):
    """Takes one loss."""

    class HParams(BaseHParams):
        """Of one loss.

        Attributes:
            loss_key: its name among the metrics; None where the learner's `loss_name` says it.
        """

        loss_key: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of what is minimised."""
        return (self.hparams.loss_key or TOTAL,)

    def aggregate(self, metrics: Metrics) -> tuple[Any, Any]:
        """Return (mean, weight) of what is minimised.

        Raises:
            ConfigError: the model does not give it.
        """
        return taken(metrics, self.keys[0])


class MultiLossAggregator(LossAggregator):
    """Takes a weighted sum of several losses. Batches count by the weight of the first one."""

    class HParams(LossAggregator.HParams):
        """Of several losses.

        Attributes:
            loss_keys: their names among the metrics.
            loss_weights: the factor of each; 1 where none are given.
        """

        loss_keys: list[str] | tuple[str, ...] = ()
        loss_weights: list[float] | tuple[float, ...] | None = None

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        keys, weights = hparams.loss_keys, hparams.loss_weights
        if not keys or (weights is not None and len(weights) != len(keys)):
            raise refusal("MultiLossAggregator", f"{len(keys)} loss_keys, loss_weights {weights}: give one for each.")

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of what is minimised."""
        return tuple(self.hparams.loss_keys)

    def aggregate(self, metrics: Metrics) -> tuple[Any, Any]:
        """Return (sum of factor * mean, weight of the first)."""
        factors = self.hparams.loss_weights or [1.0] * len(self.hparams.loss_keys)
        losses = [taken(metrics, key) for key in self.keys]
        total = sum(factor * mean for factor, (mean, _) in zip(factors, losses, strict=True))
        return total, losses[0][1]


def taken(metrics: Metrics, name: str) -> tuple[Any, Any]:
    """Return one metric. Raises ConfigError with the nearest name when there is none."""
    if name in metrics:
        return metrics[name]
    remedy = did_you_mean(name, metrics, rest=f"It gives: {', '.join(sorted(metrics))}.")
    raise refusal("loss_name", f"the model gives no loss '{name}'.", remedy)
