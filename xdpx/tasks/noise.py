"""What tasks that train on noisy features share: where the noise goes in, how it begins, moves, and is held in bounds.

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
from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.losses.base import Batch
from xdpx.tasks.default import Task
from xdpx.tasks.parameters import GROUP

Norm = Literal["l2", "linf"]
Features = Mapping[str, Tensor]
"""By name, (B, T, H) each: one tensor for a single text, two for a pair that is encoded apart."""

Result = tuple[Tensor, Tensor | int, dict[str, Tensor]]
"""What `train_step` gives: loss sum, count, facts."""

SMALLEST = 1e-12


class NoisyTask(Task):
    """Noise goes into the token vectors, or wherever `bottom_predict` and `upper_predict` cut the model."""

    hooks_model = True
    may_share_weights = False  # gradients of the noise flow back besides

    class Parameters(Task.Parameters):
        """Keys that all such tasks understand."""

        norm_method: Norm = declare.param("l2", doc="How the noise on a text is measured: l2 or linf.", group=GROUP)
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
            problem = f"is '{parameters.model}', which reads texts of its own making: noise would miss them."
            remedy = "Use task: default, or a task of your own that overrides bottom_predict and upper_predict."
            raise ConfigError(THIS_RUN, [Fault("model", problem, remedy)])

    def begin_update(self, number: int) -> None:
        """Hear which update comes, from 1."""
        self._update = number

    @property
    def noise_is_due(self) -> bool:
        """Whether this update is one of those with noise."""
        begin: int = self.parameters.adv_begin_iter
        return self._update > begin

    # ---- the points to override for a model that is to be cut elsewhere

    def bottom_predict(self, batch: Batch) -> dict[str, Tensor]:
        """Return the features that noise is added to: here the token vectors of each text of the batch."""
        table = self.model.get_input_embeddings()
        return {name: table(ids) for name, ids in batch["net_input"].items() if is_text(name, ids)}

    def upper_predict(self, batch: Batch, features: Features) -> Result:
        """Return loss sum, count and facts of a batch whose features are replaced by the given ones."""
        with replaced(self.model.get_input_embeddings(), features):
            return self.loss(self.model, batch)

    def real_tokens(self, batch: Batch, name: str, feature: Tensor) -> Tensor:
        """Tell which positions of a feature are no padding: true or false, (B, T, 1)."""
        mask = batch["net_input"].get(name.replace("input_ids", "attention_mask").replace("tokens", "mask"))
        if mask is None or mask.shape != feature.shape[:2]:
            mask = torch.ones(feature.shape[:2], dtype=torch.bool, device=feature.device)
        real: Tensor = mask.bool().unsqueeze(-1)
        return real

    # ---- what the methods are made of

    def masks(self, batch: Batch, features: Features) -> dict[str, Tensor]:
        """Return `real_tokens` of every feature."""
        return {name: self.real_tokens(batch, name, feature) for name, feature in features.items()}

    def dropout(self, batch: Batch) -> SameDropout:
        """Return what makes all passes over a batch drop the same features, unless the config wants it otherwise."""
        device = next(iter(batch["net_input"].values())).device
        return SameDropout(device, active=not self.parameters.no_sync_dp)


def is_text(name: str, value: object) -> bool:
    """Tell whether an array of a batch holds the token ids of a text."""
    named = "input_ids" in name or name.startswith("tokens")
    return named and isinstance(value, Tensor) and value.dim() == 2 and not value.is_floating_point()


@contextmanager
def replaced(table: nn.Module, features: Features) -> Generator[None]:
    """Let a module give these features instead of its own output, one after another, each time it is called.

    Raises:
        ConfigError: the model asks for other shapes than it was expected to.
    """
    waiting = cycle(features.values())  # a loss may run the model twice

    def give(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        following = next(waiting, None)
        if following is None or following.shape != output.shape:
            problem = f"asks for token vectors {tuple(output.shape)}, which are not those of one text of the batch."
            remedy = "Use task: default, or a task of your own that overrides bottom_predict and upper_predict."
            raise ConfigError(THIS_RUN, [Fault("model", problem, remedy)])
        return following

    handle = table.register_forward_hook(give)
    try:
        yield
    finally:
        handle.remove()


def noisy(features: Features, noise: Features, *, attached: bool = True) -> dict[str, Tensor]:
    """Add noise, and have the gradient of each sum kept: it is that of the feature and that of the noise alike.

    Args:
        features: what noise is added to.
        noise: of the same shapes; never part of a graph.
        attached: whether gradients go on from here to what the features were computed from.
    """
    sums = {name: (feature if attached else feature.detach()) + noise[name] for name, feature in features.items()}
    for each in sums.values():
        each.retain_grad() if each.requires_grad else each.requires_grad_()
    return sums


def first_noise(features: Features, masks: Features, size: float, norm: Norm) -> dict[str, Tensor]:
    """Draw uniform noise on real tokens; with l2 its norm is about 0.6 * size whatever the length of a text."""
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
    """Move noise by `step` along its gradient, and back into the ball of radius `limit` (0: no limit), text by text.

    Gradients may be multiplied by any positive number, such as a loss scale; where one is not finite, and where it is
    zero, the noise stays. With linf the step is the gradient over its largest entry, not its sign; `square` takes
    g |g| for each entry g.

    Source: Zhu et al., "FreeLB", ICLR 2020, algorithm 1, lines 9 and 10.
    """
    moved = {}
    for name, before in noise.items():
        gradient = gradients[name].to(before.dtype)
        gradient = gradient / _size(gradient, "linf").clamp(min=SMALLEST)  # so that no square of it vanishes
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
    """Brings torch's random state back to where it stood, so that each pass over a batch drops the same features."""

    def __init__(self, device: torch.device, *, active: bool) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._state = torch.get_rng_state() if active else None
        self._cuda_state = torch.cuda.get_rng_state(device) if active and self._cuda else None

    def rewind(self) -> None:
        """To be called before each pass."""
        if self._state is not None:
            torch.set_rng_state(self._state)
        if self._cuda is not None and self._cuda_state is not None:
            torch.cuda.set_rng_state(self._cuda_state, self._cuda)


def scaled(result: Result, share: float, *, counts: bool) -> Result:
    """Return a share of what a pass gave; its samples are counted in one pass only."""
    loss_sum, count, facts = result
    return loss_sum * share, count if counts else 0, {name: value * share for name, value in facts.items()}
