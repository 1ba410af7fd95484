"""FreeLB: adversarial training that accumulates the weights' gradients at every step of ascent of the noise."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.losses.base import Batch
from xdpx.tasks import noise as noises
from xdpx.tasks.noise import Features, NoisyTask, Result, SameDropout, scaled
from xdpx.tasks.parameters import GROUP


class FreeLB(NoisyTask):
    """Minimises the mean loss over `adv_steps` passes, each with noise moved along the gradient of the one before.

    Each backward pass gives the gradients of both weights and noise: K passes cost K times a plain step.

    Source: Zhu et al., "FreeLB: Enhanced Adversarial Training for Natural Language Understanding", ICLR 2020,
    algorithm 1.
    """

    class Parameters(NoisyTask.Parameters):
        """Keys of `freelb`."""

        adv_lr: float = declare.param(0.2, ge=0, doc="Step size of the ascent that moves the noise.", group=GROUP)
        adv_steps: int = declare.param(
            2, ge=1, doc="Passes over each batch, of which all but one move the noise.", group=GROUP
        )
        rand_init_mag: float = declare.param(
            0.32, ge=0, doc="Size of the random noise that the first pass starts from; 0: none.", group=GROUP
        )
        max_norm: float = declare.param(0.7, ge=0, doc="Maximum norm of the noise on a text; 0: no limit.", group=GROUP)
        grad_square: bool = declare.param(
            False,
            doc="Climb along the square of each entry of the gradient, with its sign: the step is as long, and goes "
            "more into the few features that matter most.",
            group=GROUP,
        )
        recompute_emb: bool = declare.param(
            False, doc="Recompute what lies below the noise in every pass, with its own dropout.", group=GROUP
        )
        orig_loss_proportion: float = declare.param(
            0.0, ge=0, le=1, doc="Share of the loss that is taken without noise, in a pass of its own.", group=GROUP
        )

    parameters: Parameters

    def idle_keys(self) -> dict[str, str]:
        """Return the keys that change nothing in this training, and why; see `Model.idle_keys`."""
        known, found = self.parameters, super().idle_keys()
        if known.orig_loss_proportion == 1:
            found["orig_loss_proportion"] = "is 1, so that no pass is left for noise. Use less than 1."
        elif known.adv_steps == 1 and not known.rand_init_mag:
            found["adv_steps"] = "is 1, and rand_init_mag is 0: there is no noise in any pass. Use 2 or more steps."
        return found

    def train_passes(self, batch: Batch) -> Generator[Result]:
        """Yield the result of each pass; the caller must run its backward pass before asking for the next."""
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
        # To the layers below the noise, the summed gradients of all passes are propagated once.
        trained = [name for name in below if bottom[name].requires_grad]
        if trained:
            torch.autograd.backward([bottom[name] for name in trained], [below[name] for name in trained])


FEATURE = "input_ids"
"""Name of BERT's output among the features, so that it gets the padding mask of the word pieces."""


class FreeLBCNN(FreeLB):
    """As `freelb`, with noise on the output of BERT instead of the token vectors, in models such as `bert_mix`.

    This applies to models whose `read` returns BERT's output and whose `forward` takes it as `pieces`; in others the
    noise is added to the token vectors.

    Source: Zhu et al., "FreeLB: Enhanced Adversarial Training for Natural Language Understanding", ICLR 2020,
    algorithm 1.
    """

    class Parameters(FreeLB.Parameters):
        """Keys of `freelb_cnn`."""

    def __init__(self, parameters: Any, model: nn.Module, loss: Any) -> None:
        super().__init__(parameters, model, loss)
        self._cut_above_bert = "pieces" in inspect.signature(model.forward).parameters

    def bottom_predict(self, batch: Batch) -> dict[str, Tensor]:
        """Return the output of BERT; in other models, the token vectors."""
        if not self._cut_above_bert:
            return super().bottom_predict(batch)
        given, read = batch["net_input"], self.model.read
        return {FEATURE: read(given["input_ids"], given["attention_mask"], given.get("token_type_ids"))}

    def upper_predict(self, batch: Batch, features: Features) -> Result:
        """Return loss sum, count and facts of a batch, with the output of BERT replaced by the given features."""
        if not self._cut_above_bert:
            return super().upper_predict(batch, features)
        return self.loss(self.model, {**batch, "net_input": {**batch["net_input"], "pieces": features[FEATURE]}})
