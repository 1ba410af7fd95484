"""One batch of an evaluation: its loss, logits and labels, whatever the form of what the model returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.precision import in_type


def prediction_step(
    trainer: Any, model: Any, inputs: Any, *, only_loss: bool, ignore_keys: list[str] | None
) -> tuple[Any, Any, Any]:
    """Give (mean loss, logits, labels) of one batch, each None where there is none; single ones out of their tuple."""
    names = trainer.label_names or ["labels"] * ("labels" in inputs)  # of a wrapper whose forward takes anything
    labelled = bool(names) and all(inputs.get(name) is not None for name in names)
    asked = inputs.get("return_loss")
    with_loss = labelled or (not names and (trainer.can_return_loss if asked is None else asked))
    inputs = trainer._prepare_inputs(inputs)
    if ignore_keys is None:
        ignore_keys = getattr(
            getattr(trainer.model, "config", None), "keys_to_ignore_at_inference", ["past_key_values"]
        )
    # The labels are taken first: computing the loss may take them out of the inputs.
    labels = _single(_detached(tuple(inputs.get(name) for name in names))) if with_loss else None
    inputs = in_type(inputs, trainer.evaluation_type)
    with torch.no_grad(), trainer.compute_loss_context_manager():
        if with_loss:
            loss, outputs = trainer.loss_calls.loss_and_outputs(model, inputs)
            loss = loss.detach().mean()
        else:
            loss, outputs = None, model(**inputs)
    if only_loss:
        return loss, None, None
    if isinstance(outputs, Mapping):
        hidden = {*ignore_keys, "loss"} if with_loss else set(ignore_keys)
        logits: Any = tuple(value for name, value in outputs.items() if name not in hidden)
    else:
        logits = outputs[1:] if with_loss else outputs
    return loss, _single(_detached(logits)), labels


def _detached(tree: Any) -> Any:
    """Detach every tensor of nested tuples and dicts."""
    return collectives.map_tensors(torch.Tensor.detach, tree)


def _single(parts: Any) -> Any:
    return parts[0] if isinstance(parts, list | tuple) and len(parts) == 1 else parts
