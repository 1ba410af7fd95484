"""FGM and PGD: train on each batch without noise, and once more with adversarial noise."""

from __future__ import annotations

import copy
from collections.abc import Generator
from typing import Any

import torch

from xdpx.config import parameters as declare
from xdpx.losses.base import Batch
from xdpx.tasks import noise as noises
from xdpx.tasks.noise import Features, NoisyTask, Result, SameDropout, scaled
from xdpx.tasks.parameters import GROUP


class Attack(NoisyTask):
    """Minimises the mean of the clean loss and the loss under noise. Subclasses compute the noise."""

    def train_passes(self, batch: Batch) -> Generator[Result]:
        """Yield the clean pass, whose gradient starts the noise, then the noisy one."""
        if not self.noise_is_due:
            yield self.train_step(batch)
            return
        dropout = self.dropout(batch)
        dropout.rewind()
        bottom = self.bottom_predict(batch)
        clean = noises.noisy(bottom, noises.first_noise(bottom, self.masks(batch, bottom), 0.0, "l2"))
        dropout.rewind()
        yield scaled(self.upper_predict(batch, clean), 0.5, counts=True)
        gradients = {name: each.grad for name, each in clean.items() if each.grad is not None}
        noise = self.attack(batch, gradients, dropout)
        dropout.rewind()
        hurt = noises.noisy(self.bottom_predict(batch), noise)
        dropout.rewind()
        yield scaled(self.upper_predict(batch, hurt), 0.5, counts=False)

    def attack(self, batch: Batch, gradients: Features, dropout: SameDropout) -> Features:
        """Return the noise, from the gradients of the clean loss."""
        raise NotImplementedError


class FGM(Attack):
    """One step along the gradient.

    Source: Miyato, Dai and Goodfellow, "Adversarial Training Methods for Semi-Supervised Text Classification",
    ICLR 2017, equation 5.
    """

    class Parameters(Attack.Parameters):
        """Keys of `fgm`."""

        adv_lr: float = declare.param(1.0, ge=0, doc="Norm of the noise on a text.", group=GROUP)

    def attack(self, batch: Batch, gradients: Features, dropout: SameDropout) -> Features:
        """Return adv_lr * gradient / |gradient|."""
        known = self.parameters
        nothing = {name: torch.zeros_like(each) for name, each in gradients.items()}
        return noises.ascended(nothing, gradients, step=known.adv_lr, limit=0.0, norm=known.norm_method)


class PGD(Attack):
    """Several steps along the gradient, each projected into a ball; no weight gradients during the ascent.

    A step is adv_lr * gradient / |gradient| in the norm of `norm_method`: with linf, the gradient divided by its
    largest entry, whereas the paper takes the sign of every entry.

    Source: Madry et al., "Towards Deep Learning Models Resistant to Adversarial Attacks", ICLR 2018, section 2.1.
    """

    class Parameters(Attack.Parameters):
        """Keys of `pgd`."""

        adv_lr: float = declare.param(0.3, ge=0, doc="Step size of the ascent that moves the noise.", group=GROUP)
        adv_steps: int = declare.param(3, ge=1, doc="Number of steps of ascent.", group=GROUP)
        rand_init_mag: float = declare.param(
            0.0, ge=0, doc="Size of the random noise that the ascent starts from; 0: none.", group=GROUP
        )
        max_norm: float = declare.param(1.0, ge=0, doc="Maximum norm of the noise on a text; 0: no limit.", group=GROUP)

    def attack(self, batch: Batch, gradients: Features, dropout: SameDropout) -> Features:
        """Return the noise after `adv_steps`; the first step uses the clean gradients unless it starts at random."""
        known: Any = self.parameters
        with torch.no_grad(), dropout.again():
            bottom = self.bottom_predict(batch)
        noise: Features = noises.first_noise(bottom, self.masks(batch, bottom), known.rand_init_mag, known.norm_method)
        before = copy.deepcopy(self.loss.state_dict())
        for number in range(known.adv_steps):
            if number or known.rand_init_mag > 0:
                gradients = self._gradients(batch, noises.noisy(bottom, noise), dropout)
            noise = noises.ascended(noise, gradients, step=known.adv_lr, limit=known.max_norm, norm=known.norm_method)
        self.loss.load_state_dict(before)  # nothing is trained in the ascent: what a loss counts is of other passes
        return noise

    def _gradients(self, batch: Batch, features: Features, dropout: SameDropout) -> Features:
        dropout.rewind()
        loss_sum, _, _ = self.upper_predict(batch, features)
        return dict(zip(features, torch.autograd.grad(loss_sum, list(features.values())), strict=True))
