"""Gradients: dense or as rows, their size, and the divisor that scales and clips them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from xdpx.engines.base import GradientSize
from xdpx.logger import log

LARGE_EMBEDDING = 1 << 20
"""Smallest number of elements of an embedding for which row gradients are worth their overhead."""

SCALING = "takes_scaling"
"""Ability: `step` itself divides by `grad_scale`, and does nothing if `found_inf` is 1.0; both are tensor attributes
of the optimizer, set before the step."""
ROWS = "takes_rows"
"""Ability: the gradient of an embedding may be sparse rows."""


def backward_of(optimizer: object) -> Callable[[Tensor, float], None] | None:
    """Return an optimizer's `fused_backward(loss, learning_rate)`, which steps in the backward pass (LOMO), or None."""
    return getattr(optimizer, "fused_backward", None)


class Scaling(NamedTuple):
    """How the optimizer should apply a gradient; every field is a scalar on the device.

    Attributes:
        norm: of the mean gradient, before clipping.
        divisor: of the summed gradient: count, loss scale and clipping in one.
        clipped: 1.0 if the norm was above the limit.
        broken: 1.0 if the gradient is not finite: the step is skipped.
    """

    norm: Tensor
    divisor: Tensor
    clipped: Tensor
    broken: Tensor


def is_able(optimizer: object, ability: str) -> bool:
    """Return whether the class of an optimizer declares an ability for its current `step`.

    A subclass that overrides `step` has the ability only if it declares it again.
    """
    for kind in type(optimizer).__mro__:
        if ability in vars(kind):
            return bool(vars(kind)[ability])
        if "step" in vars(kind):
            return False
    return False


def use_row_gradients(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Make large embeddings use sparse gradients, with rows for a batch's tokens only, if the optimizer accepts them.

    A dense gradient of an embedding is zero almost everywhere, yet every update has to allocate it, fill it, and read
    it again for its norm: with a small encoder and short texts, a sixth of the time on a CPU. An embedding whose weight
    is also used elsewhere keeps its dense gradient.
    """
    if not is_able(optimizer, ROWS):
        return
    owners = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    for module in model.modules():
        if type(module) is nn.Embedding and module.weight.numel() >= LARGE_EMBEDDING and module.max_norm is None:
            module.sparse = owners[id(module.weight)] == 1


def gradients_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return all gradients as accumulated (sums, still multiplied by the loss scale)."""
    trained = [weight for group in optimizer.param_groups for weight in group["params"] if weight.grad is not None]
    if not trained:
        raise RuntimeError("this is a bug: no weight received a gradient; is the loss cut off from the model?")
    return [numbers_of(weight) for weight in trained]


def numbers_of(weight: nn.Parameter) -> Tensor:
    """Return a weight's gradient; of a sparse one, only the values of its rows, summed by token first."""
    gradient: Any = weight.grad
    if not gradient.is_sparse:
        return cast(Tensor, gradient)
    weight.grad = summed = gradient.coalesce()
    return cast(Tensor, summed.values())


def sizes_of(model: nn.Module) -> dict[str, GradientSize]:
    """Return the gradient size of each weight that has a gradient. Waits for the device once."""
    trained = {name: each for name, each in model.named_parameters() if each.grad is not None}
    found = []
    for weight in trained.values():
        size = numbers_of(weight).abs()  # of rows alone, where the others are zero by construction
        largest = size.max() if size.numel() else size.sum()
        found.append(torch.stack([size.sum(), largest, size.count_nonzero().to(size)]).double().to(weight.device))
    if not found:
        return {}
    counts = [max(1, weight.numel()) for weight in trained.values()]
    rows = torch.stack(found).tolist()
    return {
        name: GradientSize(total / count, largest, 1.0 - nonzero / count)
        for name, count, (total, largest, nonzero) in zip(trained, counts, rows, strict=True)
    }


def warn_of_weights_outside(loss: Tensor, known: Iterable[Tensor], model: nn.Module) -> None:
    """Warn of weights that a loss depends on but that are not trained, such as those of layers in a plain list.

    Args:
        loss: of the first batch; its graph is walked once, also after the backward pass.
        known: weights that are trained, or left out on purpose.
        model: plain tensors that want a gradient are weights if it keeps them; others may be noise of one update.
    """
    ours = {id(weight) for weight in known}
    kept = {id(each) for module in model.modules() for each in vars(module).values() if isinstance(each, Tensor)}
    leaves = [leaf for leaf in _leaves(loss) if id(leaf) not in ours]
    outside = [leaf for leaf in leaves if isinstance(leaf, nn.Parameter) or id(leaf) in kept]
    if outside:
        shapes = ", ".join(str(tuple(weight.shape)) for weight in outside[:4])
        log.warning(
            f"the loss depends on weights that are not trained ({len(outside)}, of shape {shapes}"
            f"{', ...' if len(outside) > 4 else ''}): the optimizer was not given them. Make each an nn.Parameter in "
            "the __init__ of the model, also those for a loss or a task, and keep layers in nn.ModuleList or "
            "nn.ModuleDict, not in a plain list or dict. If they are not to be trained: requires_grad_(False).",
            once=True,
        )


def _leaves(loss: Tensor) -> list[Tensor]:
    """Return the tensors without history that a loss depends on, if they want a gradient."""
    waiting: list[Any] = [loss.grad_fn] if loss.grad_fn is not None else []
    seen = set(waiting)
    found: list[Tensor] = []
    while waiting:
        node = waiting.pop()
        if node.name().endswith("AccumulateGrad"):
            found.append(node.variable)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return found


def divisor_of(count: Tensor | float) -> Tensor | float:
    """Return the divisor of a loss sum: its count, or 1 where nothing was counted, so that its gradient of 0 stays."""
    return torch.where(count == 0, 1, count) if isinstance(count, Tensor) else count or 1


def scale_of(summed_norm: Tensor, count: Tensor | float, loss_scale: float, clip_norm: float) -> Scaling:
    """Return the divisor and related values, without waiting for the device.

    Args:
        summed_norm: norm of the gradient of (loss_scale * sum of losses).
        count: of the losses in that sum.
        loss_scale: multiplier of the loss under fp16, else 1.
        clip_norm: largest norm of the mean gradient; 0 for no limit.
    """
    whole = torch.as_tensor(divisor_of(count), dtype=torch.float32, device=summed_norm.device) * loss_scale
    norm = summed_norm / whole
    broken = 1.0 - torch.isfinite(norm).float()
    if clip_norm <= 0.0:
        return Scaling(norm, whole, torch.zeros_like(norm), broken)
    excess = (norm / clip_norm).clamp(min=1.0)
    return Scaling(norm, whole * excess, (norm > clip_norm).float(), broken)
