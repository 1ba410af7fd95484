"""Two optimizers for one model: a major one, and a second one for some groups of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from xdpx.config.faults import refusal
from xdpx.config.loading import Run
from xdpx.optimizers.pytorch.building import of_run
from xdpx.optimizers.pytorch.parameters import PairParameters

FIXED = "fixed_rate"
"""Key of groups whose learning rate is not changed by the schedule."""


class Pair(torch.optim.Optimizer):
    """Two optimizers that behave as one over the groups of both.

    Gradients are clipped by their norm over all weights of both.

    Source: Lample et al., "Large Memory Layers with Product Keys", NeurIPS 2019, section 4.2: the values of a memory
    have their own, constant learning rate.

    Args:
        major: optimizer of the first groups.
        second: optimizer of the remaining groups.
    """

    class Parameters(PairParameters):
        """Keys of `pair`."""

    def __init__(self, major: torch.optim.Optimizer, second: torch.optim.Optimizer) -> None:
        self._both, self._num_major = (major, second), len(major.param_groups)
        super().__init__([*major.param_groups, *second.param_groups], {})
        self._share()

    @classmethod
    def built(
        cls, run: Run, groups: Sequence[dict[str, Any]], *, model: nn.Module | None = None, prefix: str = ""
    ) -> Pair:
        """Return the pair of a run.

        Raises:
            ConfigError: `second_groups` matches no group of the model, or all of them.
        """
        known: PairParameters = run.parameters("optimizer", prefix)
        begins = tuple(known.second_groups)
        theirs = [group for group in groups if group["name"].startswith(begins)]
        ours = [group for group in groups if not group["name"].startswith(begins)]
        if not ours or not theirs:
            names = ", ".join(dict.fromkeys(group["name"] for group in groups))
            problem = f"is {known.second_groups}, but the weights of this model are in the groups: {names}."
            remedy = "Name some of them; groups called memory are those of product-key memories (bert_*_pkm)."
            raise refusal("second_groups", problem, remedy)
        fixed = {} if known.follow_lr_schedule else {FIXED: True}
        theirs = [{**group, "lr": known.second_learning_rate, **fixed} for group in theirs]
        second = of_run(run, theirs, model=model, prefix="second_", learning_rate=known.second_learning_rate)
        return cls(of_run(run, ours, model=model, prefix="major_"), second)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take one step with each optimizer."""
        if closure is not None:
            raise ValueError("Pair takes no closure: compute the gradients before calling step().")
        for one in self._both:
            one.step()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the result of `state_dict` into both optimizers."""
        super().load_state_dict(dict(state_dict))
        self._share()

    def _share(self) -> None:
        """Make both optimizers use the groups and the state of this one."""
        parts = self.param_groups[: self._num_major], self.param_groups[self._num_major :]
        for one, groups in zip(self._both, parts, strict=True):
            one.param_groups, one.state = groups, self.state
