"""Select the loss to minimise among a model's metrics: one of them, or a weighted sum of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdpx.config.faults import did_you_mean, refusal
from xdpx.config.hparams import BaseHParams, Configurable

Metrics = Mapping[str, tuple[Any, Any]]
"""(mean, weight) by name, as a model returns them."""


TOTAL = "total_loss"
"""The name of the complete loss of a model, including the auxiliary losses of its layers."""


class LossAggregator(Configurable):
    """Minimises one of the model's metrics."""

    class HParams(BaseHParams):
        """Fields of the aggregator of one loss.

        Attributes:
            loss_key: name of the loss among the metrics; None: `loss_name` of the learner.
        """

        loss_key: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the losses to minimise."""
        return (self.hparams.loss_key or TOTAL,)

    def aggregate(self, metrics: Metrics) -> tuple[Any, Any]:
        """Return (mean, weight) of the loss to minimise.

        Raises:
            ConfigError: the model returns no metric of this name.
        """
        return metric_named(metrics, self.keys[0])


class MultiLossAggregator(LossAggregator):
    """Minimises a weighted sum of several metrics. Batches are weighted by the weight of the first one."""

    class HParams(LossAggregator.HParams):
        """Fields of the aggregator of several losses.

        Attributes:
            loss_keys: names of the losses among the metrics.
            loss_weights: the factor of each; None: 1.
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
        """The names of the losses to minimise."""
        return tuple(self.hparams.loss_keys)

    def aggregate(self, metrics: Metrics) -> tuple[Any, Any]:
        """Return (sum of factor * mean, weight of the first)."""
        factors = self.hparams.loss_weights or [1.0] * len(self.hparams.loss_keys)
        losses = [metric_named(metrics, key) for key in self.keys]
        total = sum(factor * mean for factor, (mean, _) in zip(factors, losses, strict=True))
        return total, losses[0][1]


def metric_named(metrics: Metrics, name: str) -> tuple[Any, Any]:
    """Return one metric. Raises ConfigError with the nearest name if there is no such metric."""
    if name in metrics:
        return metrics[name]
    remedy = did_you_mean(name, metrics, rest=f"It gives: {', '.join(sorted(metrics))}.")
    raise refusal("loss_name", f"the model gives no loss '{name}'.", remedy)
