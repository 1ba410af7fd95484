"""Distil the feed-forward layers of a teacher into product-key memories. N real tokens of a batch, H width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import refusal
from xdpx.losses.base import Batch
from xdpx.losses.parameters import LossParameters
from xdpx.losses.taught import SumOfParts, teacher_result


class MemoryDistill(SumOfParts):
    """The squared error of the memories' outputs, averaged over features, summed over tokens and layers.

    Each layer is compared separately, on the teacher's input to it. Padding is left out.

    Source: Romero et al., "FitNets: Hints for Thin Deep Nets", ICLR 2015, equation 3, without a regressor.
    """

    class Parameters(LossParameters):
        """Keys of `pkm_local_distill`."""

    metric_names = {"loss": None, "layer_*_loss": None}

    @property
    def reads_output(self) -> bool:
        """False: hidden layers are imitated, not the output."""
        return False

    def ask(self, teacher: nn.Module, net_input: Mapping[str, Any]) -> dict[str, Any]:
        """Return inputs and outputs of the teacher's feed-forward layers.

        Raises:
            ConfigError: the teacher has no method `feed_forward`.
        """
        feed_forward = getattr(teacher, "feed_forward", None)
        if feed_forward is None:
            problem = f"is of the class {type(teacher).__name__}, which does not show its feed-forward parts."
            raise refusal("teacher_model", problem, "Use teacher_model: bert_teacher_for_pkm.")
        return {"feed_forward": feed_forward(net_input)}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over tokens and layers, the number of tokens, and the sum of each layer."""
        pairs = teacher_result(batch, "feed_forward")
        made = model({number: pair[0] for number, pair in pairs.items()})
        sums = {
            f"layer_{number}_loss": (made[number].float() - pair[1].float()).square().mean(dim=-1).sum()
            for number, pair in pairs.items()
        }
        count = len(next(iter(pairs.values()))[0])
        facts = {name: value.detach() for name, value in sums.items()}
        return torch.stack(list(sums.values())).sum(), count, facts
