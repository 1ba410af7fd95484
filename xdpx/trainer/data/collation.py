"""Collate samples into a batch: stack them, or pad them with a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase, SequenceFeatureExtractor

from xdpx.logger import log

__all__ = ["DataCollatorWithPadding", "default_collator", "default_data_collator"]

LABEL, LABEL_IDS, LABELS = "label", "label_ids", "labels"

NUMBERED = "Number the classes from 0 before, e.g. with class_encode_column of a datasets.Dataset"
"""What to do about labels that are text."""


def default_data_collator(features: Sequence[Any], return_tensors: str = "pt") -> dict[str, Any]:
    """Stack the values of samples by name; text and None are dropped, `label` and `label_ids` become `labels`.

    Args:
        features: samples: mappings, or objects with attributes. The names of the first sample are used for all.
        return_tensors: "pt" for tensors, "np" for arrays.

    Raises:
        ValueError: a sample lacks a name or a value that others have, or values cannot be stacked.
    """
    if return_tensors not in {"pt", "np"}:
        raise ValueError(f"return_tensors: is '{return_tensors}'. Use 'pt' for tensors or 'np' for arrays.")
    if not isinstance(features[0], Mapping) and not hasattr(features[0], "__dict__"):
        kind = type(features[0]).__name__
        raise TypeError(
            f"a sample is a {kind}, whose values have no names. Let the dataset return dicts of the arguments of the "
            "model's forward, or pass a data_collator that turns a list of samples into such a dict."
        )
    rows = features if isinstance(features[0], Mapping) else [vars(row) for row in features]
    first = rows[0]
    batch: dict[str, Any] = {}
    _look_at_labels(first)
    _refuse_gaps(rows)
    for name in (LABEL, LABEL_IDS):
        if first.get(name) is not None:
            batch[LABELS] = _labels(name, _column(rows, name))
            break
    for name, value in first.items():
        if name not in {LABEL, LABEL_IDS} and not _is_left_out(value):
            batch[name] = _stacked(name, _column(rows, name))
    if return_tensors == "pt":
        return batch
    return {name: value.numpy() for name, value in batch.items()}


def default_collator(processing_class: object) -> Any:
    """Return the collator for a tokenizer or feature extractor, which pads; without one, `default_data_collator`."""
    if isinstance(processing_class, PreTrainedTokenizerBase | SequenceFeatureExtractor):
        return DataCollatorWithPadding(processing_class)
    return default_data_collator


def _look_at_labels(first: Mapping[str, Any]) -> None:
    """Warn of labels in two columns, and of those that are text, which are left out."""
    if first.get(LABELS) is not None and (first.get(LABEL) is not None or first.get(LABEL_IDS) is not None):
        other = LABEL if first.get(LABEL) is not None else LABEL_IDS
        log.warning(f"samples have {other} and {LABELS}: {LABELS} is used. Remove or rename the other.", once=True)
    if isinstance(first.get(LABELS), str):
        log.warning(f"labels: are text, which is left out of batches, as any text is. {NUMBERED}.", once=True)


def _refuse_gaps(rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse numbers that later samples have, and the first lacks: it decides what is left out of all."""
    first = rows[0]
    for name, value in first.items():
        if _is_left_out(value) and not all(_is_left_out(row.get(name)) for row in rows):
            raise ValueError(_missing(name, _column(rows, name)))
    for index, row in enumerate(rows):
        if len(row) <= len(first):  # one that lacks a name of the first is refused in any case
            continue
        for name, value in row.items():
            if name not in first and not _is_left_out(value):
                raise ValueError(
                    f"'{name}': sample {index} of a batch has it, the first sample has only "
                    f"{', '.join(map(str, first))}. Give all samples the same columns, or pass a data_collator of your "
                    "own."
                )


def _is_left_out(value: object) -> bool:
    return value is None or isinstance(value, str)


def _missing(name: str, values: list[Any]) -> str:
    instead = "Use -100 where there is no target" if "label" in name else "Give all samples a number"
    advice = f"{instead}, or leave the column out of all samples."
    index = next(index for index, value in enumerate(values) if _is_left_out(value))
    found = "None" if values[index] is None else f"text ({values[index]!r:.40})"
    return f"'{name}': is {found} in sample {index} of a batch, but not in all. {advice}"


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    try:
        return [row[name] for row in rows]
    except KeyError:
        index, row = next((index, row) for index, row in enumerate(rows) if name not in row)
        raise ValueError(
            f"'{name}': the first sample of a batch has it, sample {index} has only {', '.join(map(str, row))}. Give "
            "all samples the same columns, or pass a data_collator of your own."
        ) from None


def _labels(name: str, values: list[Any]) -> Tensor:
    """Return class numbers as long and everything else as float, whatever their type; the first label tells."""
    value = values[0]
    if isinstance(value, Tensor) and (name == LABEL_IDS or value.ndim):
        return _stacked(name, values)
    if isinstance(value, Tensor):
        value = value.item()
    elif name == LABEL_IDS:
        value = value[0]
    whole = isinstance(value, int | np.integer)
    try:
        labels = torch.tensor(values, dtype=torch.long if whole else torch.float)
        if whole and not torch.equal(numbers := torch.tensor(values, dtype=torch.double), labels.double()):
            return numbers.float()  # the first alone is whole, as in 1, 2.5: integers would lose the fractions
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(_unequal(name, values, error)) from error
    return labels


def _stacked(name: str, values: list[Any]) -> Tensor:
    try:
        if isinstance(values[0], Tensor):
            return torch.stack(values)
        if isinstance(values[0], np.ndarray):
            return torch.from_numpy(np.stack(values))
        return torch.tensor(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(_unequal(name, values, error)) from error


def _unequal(name: str, values: list[Any], error: Exception) -> str:
    sizes = sorted({len(value) for value in values if hasattr(value, "__len__") and not isinstance(value, np.generic)})
    if len(sizes) > 1:
        return (
            f"'{name}': samples of a batch have lengths {', '.join(map(str, sizes))} and cannot be stacked. Pad them "
            "while tokenizing, or pass the tokenizer as processing_class (or a DataCollatorWithPadding as "
            "data_collator), which pads each batch."
        )
    kinds = sorted({type(value).__name__ for value in values})
    if "NoneType" in kinds:
        return _missing(name, values)
    if kinds == ["str"] and "label" in name:
        return f"'{name}': is text ({values[0]!r:.40}), of which no tensor can be made. {NUMBERED}."
    return f"'{name}': values of type {', '.join(kinds)} do not make a tensor ({error}). Remove or convert the column."
