"""SMART: predictions that stay where they are when the features move a little."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from xdpx.losses.base import Batch
from xdpx.losses.divergence import symmetric_divergence
from xdpx.tasks import noise as noises
from xdpx.tasks.noise import Features, NoisyTask, Result, SameDropout
from xdpx.tasks.noise_parameters import SmartParameters


class Smart(NoisyTask):
    """The loss, and the disagreement between the prediction and that under the noise which changes it most.

    For models that give logits of classes, (B, C).

    Source: Jiang et al., "SMART: Robust and Efficient Fine-Tuning for Pre-trained Natural Language Models through
    Principled Regularized Optimization", ACL 2020, equations 1 and 2, without the proximal point.
    """

    class Parameters(NoisyTask.Parameters, SmartParameters):
        """Keys of `smart`."""

    parameters: Parameters

    def train_step(self, batch: Batch) -> Result:
        """Give (loss sum plus weighted disagreement, count, facts)."""
        if not self.noise_is_due:
            return super().train_step(batch)
        known, dropout = self.parameters, self.dropout(batch)
        recorder = _Recorder(self.model)
        loss_sum, count, facts = self.loss(recorder, batch)
        clean = recorder.logits.float().log_softmax(dim=-1)
        hurt = noises.noisy(self.bottom_predict(batch), self._worst(batch, clean.detach(), dropout))
        disagreement = symmetric_divergence(self._log_prob(batch, hurt, dropout), clean)
        facts = {**facts, "smoothness": disagreement.detach()}
        return loss_sum + known.smoothness_weight * disagreement, count, facts

    def _worst(self, batch: Batch, clean: Tensor, dropout: SameDropout) -> Features:
        """Climb on the disagreement with the clean prediction."""
        known = self.parameters
        with torch.no_grad():
            bottom = self.bottom_predict(batch)
        masks = self.masks(batch, bottom)
        noise: Features = {
            name: torch.randn_like(each) * known.rand_init_mag * masks[name] for name, each in bottom.items()
        }
        for _ in range(known.adv_steps):
            features = noises.noisy(bottom, noise)
            gap = symmetric_divergence(self._log_prob(batch, features, dropout), clean)
            gradients = dict(zip(features, torch.autograd.grad(gap, list(features.values())), strict=True))
            noise = noises.ascended(noise, gradients, step=known.adv_lr, limit=known.max_norm, norm=known.norm_method)
        return noise

    def _log_prob(self, batch: Batch, features: Features, dropout: SameDropout) -> Tensor:
        dropout.rewind()
        with noises.replaced(self.model.get_input_embeddings(), features):  # type: ignore[operator]
            logits: Tensor = self.model(**batch["net_input"])
        return logits.float().log_softmax(dim=-1)


class _Recorder(torch.nn.Module):
    """Calls a model, and keeps what it gave last."""

    logits: Tensor

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **net_input: Any) -> Tensor:
        """Give the logits."""
        self.logits = self.model(**net_input)
        return self.logits
