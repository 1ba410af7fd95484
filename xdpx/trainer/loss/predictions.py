"""One batch of an evaluation: which inputs are labels, and which outputs of the model are predictions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from xdpx.engines.pytorch import collectives
from xdpx.logger import log
from xdpx.trainer.loss.model_loss import LossFacts


def targets_wanted(inputs: Mapping[str, Any], facts: LossFacts) -> list[str] | None:
    """Return the names of a batch's labels (empty if the model needs none); None for a batch without a loss."""
    names = facts.label_names or ["labels"] * ("labels" in inputs)  # a wrapper's forward may accept anything
    if names:
        return names if all(inputs.get(name) is not None for name in names) else None
    asked = inputs.get("return_loss")
    return [] if (facts.returns_loss if asked is None else asked) else None


def labels_of(inputs: Mapping[str, Any], names: list[str] | None) -> Any:
    """Return the labels of a batch: one tree, a tuple of several, None for a batch without a loss."""
    return None if names is None else _single(_detached(tuple(inputs.get(name) for name in names)))


def logits_of(outputs: Any, left_out: Collection[str], *, with_loss: bool) -> Any:
    """Return the predictions among the outputs of a model, whatever their form; a tuple of one is unpacked.

    Outputs that are None, such as the loss of a batch without labels, are no predictions.

    Args:
        outputs: a mapping, a tuple, or one tensor, which is then the prediction.
        left_out: names of outputs that are not predictions.
        with_loss: whether the loss is among the outputs, first or under `loss`.
    """
    if isinstance(outputs, Mapping):
        hidden = {*left_out, "loss"} if with_loss else set(left_out)
        logits: Any = _given(value for name, value in outputs.items() if name not in hidden)
    elif isinstance(outputs, torch.Tensor):
        logits = outputs
    else:
        logits = outputs[1:] if with_loss and not _lacks_loss(outputs) else outputs
        if isinstance(logits, tuple | list) and any(each is None for each in logits):
            logits = _given(logits)
    return _single(_detached(logits))


def _lacks_loss(outputs: Any) -> bool:
    """Return whether a tuple has nothing but predictions, where the loss should be first; warn if some are left out."""
    first = outputs[0] if isinstance(outputs, tuple | list) and outputs else None
    if not isinstance(first, torch.Tensor) or first.dim() < 2:
        return False
    if len(outputs) > 1:
        log.warning(
            f"compute_loss: the first of the outputs that it returned, of shape {tuple(first.shape)}, stands in the "
            "place of the loss and is left out of the predictions. Return the loss before it, or a dict.",
            once=True,
        )
    return len(outputs) == 1


def _given(outputs: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(each for each in outputs if each is not None)


def ignored_outputs(model: nn.Module) -> Collection[str]:
    """Return the names of the outputs that the model itself excludes from predictions."""
    if not hasattr(model, "config"):
        return ()
    return getattr(model.config, "keys_to_ignore_at_inference", ["past_key_values"])


def _detached(tree: object) -> Any:
    """Detach every tensor of nested tuples and dicts."""
    return collectives.map_tensors(torch.Tensor.detach, tree)


def _single(parts: Any) -> Any:
    return parts[0] if isinstance(parts, list | tuple) and len(parts) == 1 else parts
