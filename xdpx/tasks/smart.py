"""SMART: regularization that keeps predictions stable under small changes of the features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.losses.base import UNITS, Batch
from xdpx.metrics import ratio
from xdpx.tasks import noise as noises
from xdpx.tasks.noise import Features, NoisyTask, Norm, Result, SameDropout
from xdpx.tasks.parameters import GROUP


class Smart(NoisyTask):
    """Minimises the loss plus the disagreement between the predictions without noise and with adversarial noise.

    For losses over logits of classes, (B, C), which define the distance of two predictions as `disagreement`.

    Source: Jiang et al., "SMART: Robust and Efficient Fine-Tuning for Pre-trained Natural Language Models through
    Principled Regularized Optimization", ACL 2020, equations 1 and 2, without the proximal point; the disagreement is
    half of the symmetric divergence there.
    """

    class Parameters(NoisyTask.Parameters):
        """Keys of `smart`."""

        norm_method: Norm = declare.param(
            "linf", doc="Norm that measures the noise on a text: l2 or linf.", group=GROUP
        )
        adv_lr: float = declare.param(1e-3, ge=0, doc="Step size of the ascent that moves the noise.", group=GROUP)
        adv_steps: int = declare.param(1, ge=1, doc="Number of steps of ascent.", group=GROUP)
        rand_init_mag: float = declare.param(
            1e-5, gt=0, doc="Spread of the random noise that the ascent starts from.", group=GROUP
        )
        max_norm: float = declare.param(1e-5, gt=0, doc="Maximum norm of the noise on a text.", group=GROUP)
        smoothness_weight: float = declare.param(
            1.0, ge=0, doc="Weight of the divergence from the noisy prediction.", group=GROUP
        )

    parameters: Parameters

    def __init__(self, parameters: Parameters, model: nn.Module, loss: Any) -> None:
        super().__init__(parameters, model, loss)
        if not loss.reads_class_logits:
            problem = f"is '{parameters.loss}', which does not define a distance between two predictions."
            remedy = "Use a loss over the logits of classes, such as cross_entropy or bce, or another task."
            raise refusal("loss", problem, remedy)

    @staticmethod
    def train_metrics(facts: Mapping[str, float]) -> dict[str, float]:
        """Return `smoothness`: the disagreement in bits per row, before it is weighted."""
        if "smoothness" not in facts:
            return {}
        return {"smoothness": ratio(facts["smoothness"] * UNITS["bits"], facts["count"], empty=float("nan"))}

    def train_step(self, batch: Batch) -> Result:
        """Return (loss sum plus weighted disagreement, count, facts)."""
        if not self.noise_is_due:
            return super().train_step(batch)
        known, dropout = self.parameters, self.dropout(batch)
        recorder = _Recorder(self.model)
        loss_sum, count, facts = self.loss(recorder, batch)
        clean = recorder.logits
        worst = self._worst(batch, clean.detach(), dropout)
        with dropout.again():
            hurt = noises.noisy(self.bottom_predict(batch), worst)
        disagreement = self.loss.disagreement(self._logits(batch, hurt, dropout), clean)
        facts = {**facts, "smoothness": disagreement.detach()}
        return loss_sum + known.smoothness_weight * disagreement, count, facts

    def _worst(self, batch: Batch, clean: Tensor, dropout: SameDropout) -> Features:
        """Return the noise after ascent on the disagreement with the clean prediction."""
        known = self.parameters
        with torch.no_grad(), dropout.again():
            bottom = self.bottom_predict(batch)
        masks = self.masks(batch, bottom)
        noise: Features = {
            name: torch.randn_like(each) * known.rand_init_mag * masks[name] for name, each in bottom.items()
        }
        for _ in range(known.adv_steps):
            features = noises.noisy(bottom, noise)
            gap = self.loss.disagreement(self._logits(batch, features, dropout), clean)
            gradients = dict(zip(features, torch.autograd.grad(gap, list(features.values())), strict=True))
            noise = noises.ascended(noise, gradients, step=known.adv_lr, limit=known.max_norm, norm=known.norm_method)
        return noise

    def _logits(self, batch: Batch, features: Features, dropout: SameDropout) -> Tensor:
        dropout.rewind()
        with noises.replaced(self.model.get_input_embeddings(), features):
            logits: Tensor = self.model(**batch["net_input"])
        return logits.float()


class _Recorder(torch.nn.Module):
    """Wraps a model, and records its outputs: a loss may call it a second time, with other dropout."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self._passes: list[Tensor] = []

    @property
    def logits(self) -> Tensor:
        """The logits of the first pass, in float32."""
        return self._passes[0].float()

    def forward(self, **net_input: Any) -> Tensor:
        """Return the logits."""
        self._passes.append(self.model(**net_input))
        return self._passes[-1]
