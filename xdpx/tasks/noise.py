"""Common parts of adversarial tasks: where the noise is added, how it is initialised, moved and bounded.

Letters: B texts, T positions, H width of a feature.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from itertools import cycle
from typing import Any, Literal

import torch
from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.losses.base import Batch
from xdpx.tasks.default import Task
from xdpx.tasks.parameters import GROUP

Norm = Literal["l2", "linf"]
Features = Mapping[str, Tensor]
"""By name, (B, T, H) each: one tensor for a single text, two for a pair whose texts are encoded separately."""

Result = tuple[Tensor, Tensor | int, dict[str, Tensor]]
"""The return value of `train_step`: loss sum, count, facts."""

SMALLEST = 1e-12


class NoisyTask(Task):
    """Adds noise to the token vectors, or wherever `bottom_predict` and `upper_predict` split the model."""

    hooks_model = True
    may_share_weights = False  # gradients also flow to the noise

    class Parameters(Task.Parameters):
        """Keys that all such tasks understand."""

        norm_method: Norm = declare.param("l2", doc="Norm that measures the noise on a text: l2 or linf.", group=GROUP)
        no_sync_dp: bool = declare.param(
            False, doc="Draw new dropout in every pass; false: the same features are dropped in all.", group=GROUP
        )
        adv_begin_iter: int = declare.param(
            -1, ge=-1, doc="Train without noise up to this update; -1: noise from the first.", group=GROUP
        )

    parameters: Any
    _update = 0

    def __init__(self, parameters: Any, model: nn.Module, loss: Any) -> None:
        super().__init__(parameters, model, loss)
        cut_here = type(self).upper_predict is NoisyTask.upper_predict
        if cut_here and not model.takes_noise:
            problem = f"is '{parameters.model}', which reads texts that it builds itself: noise would not reach them."
            remedy = "Use task: default, or a task of your own that overrides bottom_predict and upper_predict."
            raise refusal("model", problem, remedy)

    def begin_update(self, number: int) -> None:
        """Record the number of the coming update, from 1."""
        self._update = number

    @property
    def noise_is_due(self) -> bool:
        """Whether noise is added in this update."""
        begin: int = self.parameters.adv_begin_iter
        return self._update > begin

    # ---- override these to split the model elsewhere

    def bottom_predict(self, batch: Batch) -> dict[str, Tensor]:
        """Return the features that noise is added to: by default the token vectors of each text of the batch."""
        table = self.model.get_input_embeddings()
        return {name: table(ids) for name, ids in batch["net_input"].items() if is_text(name, ids)}

    def upper_predict(self, batch: Batch, features: Features) -> Result:
        """Return loss sum, count and facts of a batch, with its features replaced by the given ones."""
        with replaced(self.model.get_input_embeddings(), features):
            return self.loss(self.model, batch)

    def real_tokens(self, batch: Batch, name: str, feature: Tensor) -> Tensor:
        """Return a bool mask (B, T, 1) of the positions of a feature that are not padding."""
        mask = batch["net_input"].get(name.replace("input_ids", "attention_mask").replace("tokens", "mask"))
        if mask is None or mask.shape != feature.shape[:2]:
            mask = torch.ones(feature.shape[:2], dtype=torch.bool, device=feature.device)
        real: Tensor = mask.bool().unsqueeze(-1)
        return real

    # ---- building blocks for subclasses

    def masks(self, batch: Batch, features: Features) -> dict[str, Tensor]:
        """Return `real_tokens` of every feature."""
        return {name: self.real_tokens(batch, name, feature) for name, feature in features.items()}

    def dropout(self, batch: Batch) -> SameDropout:
        """Return a `SameDropout` for the passes over a batch; it does nothing if `no_sync_dp` is set."""
        device = next(iter(batch["net_input"].values())).device
        return SameDropout(device, active=not self.parameters.no_sync_dp)


def is_text(name: str, value: object) -> bool:
    """Return whether an input of a batch holds the token ids of a text."""
    named = "input_ids" in name or name.startswith("tokens")
    return named and isinstance(value, Tensor) and value.dim() == 2 and not value.is_floating_point()


@contextmanager
def replaced(table: nn.Module, features: Features) -> Generator[None]:
    """Make a module return the given features instead of its output, one after another, each time it is called.

    Raises:
        ConfigError: the shape of a feature differs from that of the output it replaces.
    """
    waiting = cycle(features.values())  # a loss may run the model twice

    def give(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        following = next(waiting, None)
        if following is None or following.shape != output.shape:
            problem = f"asks for token vectors {tuple(output.shape)}, which are not those of one text of the batch."
            remedy = "Use task: default, or a task of your own that overrides bottom_predict and upper_predict."
            raise refusal("model", problem, remedy)
        return following

    handle = table.register_forward_hook(give)
    try:
        yield
    finally:
        handle.remove()


def noisy(features: Features, noise: Features, *, attached: bool = True) -> dict[str, Tensor]:
    """Return features + noise, with their gradients retained; these are also the gradients of the noise.

    Args:
        features: that noise is added to.
        noise: of the same shapes; never part of a graph.
        attached: whether gradients flow on to what the features were computed from.
    """
    sums = {name: (feature if attached else feature.detach()) + noise[name] for name, feature in features.items()}
    for each in sums.values():
        each.retain_grad() if each.requires_grad else each.requires_grad_()
    return sums


def first_noise(features: Features, masks: Features, size: float, norm: Norm) -> dict[str, Tensor]:
    """Return uniform noise on real tokens; with l2 its norm is about 0.6 * size, whatever the length of a text."""
    found = {}
    for name, feature in features.items():
        mask = masks[name]
        noise = torch.zeros_like(feature, requires_grad=False)
        if size > 0:
            noise = noise.uniform_(-size, size) * mask
        if norm == "l2":
            noise = noise / (mask.sum(dim=1, keepdim=True) * feature.shape[-1]).clamp(min=1).sqrt()
        found[name] = noise
    return found


@torch.no_grad()
def ascended(
    noise: Features, gradients: Features, *, step: float, limit: float, norm: Norm, square: bool = False
) -> dict[str, Tensor]:
    """Move noise by `step` along its gradient, and project it into the ball of radius `limit` (0: no limit), per text.

    Gradients may be multiplied by any positive number, such as a loss scale; where a text's gradient is zero or not
    finite, its noise is not moved. With linf the step is the gradient over its largest entry, not its sign; `square`
    takes g |g| for each entry g.

    Source: Zhu et al., "FreeLB", ICLR 2020, algorithm 1, lines 9 and 10.
    """
    moved = {}
    for name, before in noise.items():
        gradient = gradients[name].to(before.dtype)
        gradient = gradient / _size(gradient, "linf").clamp(min=SMALLEST)  # so that squaring it does not underflow
        direction = gradient * gradient.abs() if square else gradient
        after = before + step * direction / _size(direction, norm).clamp(min=SMALLEST)
        after = torch.where(torch.isfinite(_size(gradient, "linf")), after, before)
        if limit > 0:
            inside = (limit / _size(after, "l2").clamp(min=SMALLEST)).clamp(max=1.0)
            after = after * inside if norm == "l2" else after.clamp(-limit, limit)
        moved[name] = after
    return moved


def _size(each_BTH: Tensor, norm: Norm) -> Tensor:
    """Return the norm over all features of a text, (B, 1, 1)."""
    flat = each_BTH.flatten(1)
    size = flat.norm(dim=1) if norm == "l2" else flat.abs().amax(dim=1)
    return size[:, None, None]


class SameDropout:
    """Restores torch's random state before each pass over a batch, so that dropout is the same in all passes."""

    def __init__(self, device: torch.device, *, active: bool) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._state = torch.get_rng_state() if active else None
        self._cuda_state = torch.cuda.get_rng_state(device) if active and self._cuda else None

    @contextmanager
    def again(self) -> Generator[None]:
        """Repeat the random numbers of a pass inside the block, such as NEFTune's, and go on after it as before it."""
        now = None if self._state is None else SameDropout(self._cuda or torch.device("cpu"), active=True)
        self.rewind()
        yield
        if now is not None:
            now.rewind()

    def rewind(self) -> None:
        """Restore the random state; call it before each pass."""
        if self._state is not None:
            torch.set_rng_state(self._state)
        if self._cuda is not None and self._cuda_state is not None:
            torch.cuda.set_rng_state(self._cuda_state, self._cuda)


def scaled(result: Result, share: float, *, counts: bool) -> Result:
    """Return the result of a pass times `share`; its samples count only if `counts`."""
    loss_sum, count, facts = result
    return loss_sum * share, count if counts else 0, {name: value * share for name, value in facts.items()}
