"""Memories that imitate the feed-forward parts of a teacher. N real tokens of a batch, H width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.losses.base import Batch, Gathered
from xdpx.losses.parameters import LossParameters
from xdpx.losses.taught import Taught, told_by_teacher
from xdpx.metrics import ratio


class MemoryDistill(Taught):
    """The squared error of what memories hold for a token, a mean over features, summed over tokens and layers.

    Each layer is compared by itself, on what goes into it in the teacher. Padding has no part in it.

    Source: Romero et al., "FitNets: Hints for Thin Deep Nets", ICLR 2015, equation 3, without a regressor.
    """

    class Parameters(LossParameters):
        """What all losses let a user decide."""

    scored_by_teacher = True
    metric_names = {"loss": None, "layer_*_loss": None}

    @property
    def reads_output(self) -> bool:
        """False: what goes on inside is imitated."""
        return False

    def ask(self, teacher: nn.Module, net_input: Mapping[str, Any]) -> dict[str, Any]:
        """Return what goes into the feed-forward parts of the teacher, and what comes out.

        Raises:
            ConfigError: the teacher does not tell.
        """
        feed_forward = getattr(teacher, "feed_forward", None)
        if feed_forward is None:
            problem = f"is of the class {type(teacher).__name__}, which does not show its feed-forward parts."
            raise ConfigError(THIS_RUN, [Fault("teacher_model", problem, "Use teacher_model: bert_teacher_for_pkm.")])
        return {"feed_forward": feed_forward(net_input)}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over tokens and layers, the number of tokens, and the sum of each layer."""
        pairs = told_by_teacher(batch, "feed_forward")
        made = model({number: pair[0] for number, pair in pairs.items()})
        sums = {
            f"layer_{number}_loss": (made[number].float() - pair[1].float()).square().mean(dim=-1).sum()
            for number, pair in pairs.items()
        }
        count = len(next(iter(pairs.values()))[0])
        facts = {name: value.detach() for name, value in sums.items()}
        return torch.stack(list(sums.values())).sum(), count, facts

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return sums only."""
        loss_sum, count, facts = self(model, batch)
        return {"loss_sum": loss_sum, "count": torch.as_tensor(count), **facts}

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss, and that of each layer, per token."""
        return self.train_metrics({name: float(value) for name, value in gathered.items()})

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss, and that of each layer, per token; whatever `loss_unit` says."""
        named = {"loss": facts["loss_sum"], **{name: facts[name] for name in facts if name.endswith("_loss")}}
        return {name: ratio(value, facts["count"], empty=float("nan")) for name, value in named.items()}
