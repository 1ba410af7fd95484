"""What users ask a Trainer about its optimizer."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from xdpx.optimizers.lr_schedulers.named import steps_on_metric


class AnswersAboutOptimizer:
    """The methods of a Trainer that answer it."""

    model: Any
    optimizer: Any
    lr_scheduler: Any

    def get_num_trainable_parameters(self) -> int:
        """Give the number of weights that are trained."""
        return sum(each.numel() for each in self.model.parameters() if each.requires_grad)

    def get_learning_rates(self) -> list[float]:
        """Give the learning rate of each group of the optimizer."""
        return [group["lr"] for group in self._made_optimizer().param_groups]

    def get_optimizer_group(self, param: str | Tensor | None = None) -> Any:
        """Give the group of the optimizer that holds a weight; all groups without one."""
        groups = self._made_optimizer().param_groups
        if param is None:
            return [group["params"] for group in groups]
        return next((group for group in groups if any(each is param for each in group["params"])), None)

    def _made_optimizer(self) -> Any:
        if self.optimizer is None:
            raise ValueError("there is no optimizer yet. Call create_optimizer() or train() first.")
        return self.optimizer

    def _get_learning_rate(self) -> float:
        rate = self.optimizer.param_groups[0]["lr"] if steps_on_metric(self.lr_scheduler) else None
        rate = self.lr_scheduler.get_last_lr()[0] if rate is None else rate
        return float(rate) if isinstance(rate, Tensor) else rate
