"""FreeLB: training on noise that climbs while the gradients of the weights are gathered on the way."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from xdpx.losses.base import Batch
from xdpx.tasks import noise as noises
from xdpx.tasks.noise import NoisyTask, Result, SameDropout, scaled
from xdpx.tasks.noise_parameters import FreeLBParameters


class FreeLB(NoisyTask):
    """The mean loss over `adv_steps` passes, each with noise that the gradient of the one before has moved.

    Every backward pass serves twice, for the weights and for the noise: K passes cost K times a plain step.

    Source: Zhu et al., "FreeLB: Enhanced Adversarial Training for Natural Language Understanding", ICLR 2020,
    algorithm 1.
    """

    class Parameters(NoisyTask.Parameters, FreeLBParameters):
        """Keys of `freelb`."""

    parameters: Parameters

    def train_passes(self, batch: Batch) -> Generator[Result]:
        """Yield each pass; whoever takes it goes backward before asking for the next."""
        known = self.parameters
        if not self.noise_is_due:
            yield self.train_step(batch)
            return
        clean, dropout = known.orig_loss_proportion, self.dropout(batch)
        if clean > 0:
            yield scaled(self.train_step(batch), clean, counts=True)
        if clean < 1:
            yield from self._climb(batch, dropout, share=(1 - clean) / known.adv_steps, counts=clean == 0)

    def _climb(self, batch: Batch, dropout: SameDropout, *, share: float, counts: bool) -> Generator[Result]:
        known = self.parameters
        dropout.rewind()
        bottom = self.bottom_predict(batch)
        noise = noises.first_noise(bottom, self.masks(batch, bottom), known.rand_init_mag, known.norm_method)
        below: dict[str, Tensor] = {}  # gradients of the features, summed over passes
        for number in range(known.adv_steps):
            dropout.rewind()
            if number and known.recompute_emb:
                bottom = self.bottom_predict(batch)
            features = noises.noisy(bottom, noise, attached=known.recompute_emb)
            yield scaled(self.upper_predict(batch, features), share, counts=counts and number == 0)
            gradients = {name: each.grad for name, each in features.items() if each.grad is not None}
            if not known.recompute_emb:
                below = {name: below[name] + each if below else each for name, each in gradients.items()}
            if number < known.adv_steps - 1:
                noise = noises.ascended(
                    noise, gradients, step=known.adv_lr, limit=known.max_norm, norm=known.norm_method,
                    square=known.grad_square,
                )  # fmt: skip
        _go_on_below(bottom, below)


def _go_on_below(bottom: dict[str, Tensor], gradients: dict[str, Tensor]) -> None:
    """Hand the gradients of all passes to what lies below the noise, once; they carry the loss scale already."""
    trained = [name for name in gradients if bottom[name].requires_grad]
    if trained:
        torch.autograd.backward([bottom[name] for name in trained], [gradients[name] for name in trained])
