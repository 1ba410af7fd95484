"""Explain an error of a transformers model: which labels or ids of the batch do not fit its sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from xdpx.models.pytorch import preparing
from xdpx.trainer.loss.model_loss import IGNORED


def note_misfits(error: Exception, model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Add to an error what in the inputs does not fit the sizes of the model: torch names neither input nor size."""
    if isinstance(error, IndexError | TypeError | ValueError | RuntimeError):
        for misfit in _misfits(preparing.bare(model), inputs):
            error.add_note(misfit)


def _misfits(model: nn.Module, inputs: Mapping[str, Any]) -> Iterator[str]:
    config, labels, ids = getattr(model, "config", None), inputs.get("labels"), inputs.get("input_ids")
    if _on_host(labels) and "Classification" in type(model).__name__:
        yield from _of_labels(labels, config, whole_rows="SequenceClassification" in type(model).__name__)
    if inputs and all("label" in str(name) for name in inputs):
        yield (
            f"The batch holds only {', '.join(map(str, inputs))}: no other column of the data is an input of the "
            "model. Tokenize texts before, e.g. data.map(lambda row: tokenizer(row['text'])), and keep the new columns."
        )
    if not _on_host(ids):
        return
    if ids.ndim == 3 and ids.shape[1] == 1:
        yield (
            f"input_ids: has shape {tuple(ids.shape)}, where each row is in a list of its own. Tokenize without "
            "return_tensors, which makes a batch of each single text."
        )
    table = None
    with suppress(AttributeError, NotImplementedError):  # networks of users, and some with several embeddings
        table = getattr(model.get_input_embeddings(), "num_embeddings", None)  # type: ignore[operator]
    if table is not None and int(ids.max()) >= table:
        yield (
            f"input_ids: has {int(ids.max())}, but the model has {table} embeddings. Use the tokenizer that belongs to "
            "the model; if tokens were added to it, call model.resize_token_embeddings(len(tokenizer))."
        )
    longest = getattr(config, "max_position_embeddings", None)
    if isinstance(longest, int) and ids.shape[-1] > longest:
        yield (
            f"input_ids: has {ids.shape[-1]} tokens in a row, but the model has max_position_embeddings={longest}. "
            f"Tokenize with truncation=True, max_length={longest}."
        )


def _of_labels(labels: Tensor, config: object, *, whole_rows: bool) -> Iterator[str]:
    num_labels = getattr(config, "num_labels", None)
    if num_labels is None or num_labels < 2:
        return
    if labels.is_floating_point() or labels.dtype is torch.bool:
        if labels.ndim == 1:
            yield (
                f"labels: are {labels.dtype}, which the model takes for several labels per row. Give integers for "
                "classes, or num_labels=1 for numbers to be predicted."
            )
        return
    if getattr(config, "problem_type", None) == "multi_label_classification":
        yield (
            f"labels: are {labels.dtype}, but the model has problem_type='multi_label_classification'. Give floats: 1 "
            f"for each of its {num_labels} labels that a row has, 0 for the others."
        )
        return
    if whole_rows and labels.ndim > 1 and labels.shape[-1] == num_labels:
        yield (
            f"labels: has {num_labels} integers for each row, as many as the model has classes. Give the number of the "
            "class; or floats, and problem_type='multi_label_classification', if a row may have several."
        )
        return
    targets = labels[labels.ne(IGNORED)]
    if targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < num_labels:
        yield (
            f"labels: are {int(targets.min())} to {int(targets.max())}, but the model has num_labels={num_labels}. "
            f"Number them from 0, {IGNORED} where there is no target, and load the model with that many as num_labels."
        )


def _on_host(value: object) -> TypeGuard[Tensor]:
    """Return whether a value is a tensor that can be read: after an error on a GPU, none there can."""
    return isinstance(value, Tensor) and value.device.type == "cpu" and value.ndim > 0 and value.numel() > 0
