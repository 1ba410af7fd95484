"""Check the batches of inputs: against the experiment's specification, and for what the model would misread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from xdpx.config.faults import ConfigError, Fault
from xdpx.datasets.inputs.base_input import BaseInput, Problem
from xdpx.datasets.inputs.rows import rows_of, unlike_rows
from xdpx.experiments.running.parts import Parts, fault_of, of_all
from xdpx.logger import log
from xdpx.models.spmd.base_model import BaseModel
from xdpx.utils.nested_map import NestedMap

READ = frozenset({"ids", "masked_ids", "token_types"})
"""Arrays of ids that a model reads; in others, such as labels, entries without weight may be anything."""


def check_batch(batch: Mapping[str, Any], parts: Parts) -> None:
    """Compare a batch of this process with the experiment's specification.

    Raises:
        ConfigError: lists each array that differs.
    """
    faults = []
    given = dict(NestedMap(batch).FlattenItems())
    for name, leaf in parts.spec.FlattenItems():
        found = given.get(name)
        if found is None:
            faults.append(Fault(f"input_specs.{name}", "is not in the batch.", f"It has: {', '.join(given)}."))
            continue
        shape = of_all(np.shape(found), parts.host[1])
        if shape != tuple(leaf.shape) or np.asarray(found).dtype != leaf.dtype:
            has = f"{np.asarray(found).dtype}{list(shape)}"
            problem = f"is {leaf.dtype}{list(leaf.shape)} over all processes; the training input gives {has}."
            faults.append(Fault(f"input_specs.{name}", problem, "Make them equal, or set enforce_input_specs=False."))
    if faults:
        raise ConfigError(type(parts.experiment).__name__, faults)


def check_content(
    batch: Mapping[str, Any], parts: Parts, data: BaseInput, *, decoding: bool = False
) -> Mapping[str, Any]:
    """Return a batch of this process if the model reads it as it is meant.

    Raises:
        ConfigError: names the first array of other rows or dimensions than it should have; the first id that the model
            does not know, except in padding; or what it would misread.
    """
    given = dict(NestedMap(batch).FlattenItems())
    for name, problem, remedy in (*_unlike_rows(given, parts), *_other_form(given, parts, data, decoding=decoding)):
        raise fault_of(parts.experiment, f"{data.name}.{name}", problem, remedy)
    _warn_of_wide(given, data)
    for name, count in parts.num_ids.items():
        above, _, last = name.rpartition(".")
        near = {**batch, **NestedMap(batch).Get(above, {})} if above else batch
        ids = np.asarray(near.get(last, 0))
        if not count or not ids.size or (ids.min() >= 0 and ids.max() < count):
            continue
        unknown = ((ids < 0) | (ids >= count)) & _counted(near, ids.shape, is_label=last not in READ)
        if unknown.any():
            problem = f"has the id {ids[unknown][0]}, but those of the model are 0 to {count - 1}."
            remedy = "Use the vocabulary or classes that the model was made for, or enlarge it."
            raise fault_of(parts.experiment, f"{data.name}.{name}", problem, remedy)
    if isinstance(parts.task.model, BaseModel):
        for name, problem, remedy in parts.task.model.misread(batch, decoding=decoding):
            raise fault_of(parts.experiment, f"{data.name}.{name}", problem, remedy)
    return batch


def _counted(batch: Mapping[str, Any], shape: tuple[int, ...], *, is_label: bool) -> Any:
    """Return which entries of an array with rows are neither padding nor, for labels, without weight."""
    counted = np.ones(shape, bool)
    for name in ("eval_sample_weights", "paddings", *(("weights", "masked_pos") if is_label else ())):
        mask = np.asarray(batch.get(name, 0))
        if mask.ndim and mask.shape == shape[: mask.ndim]:
            wanted = mask < 0.5 if name == "paddings" else mask > 0
            counted &= wanted.reshape(*mask.shape, *[1] * (len(shape) - mask.ndim))
    return counted


def shapes_of(batch: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the shape of each array of a batch by name."""
    return {name: list(np.shape(leaf)) for name, leaf in NestedMap(batch).FlattenItems()}


def batch_text(shapes: Mapping[str, list[int]] | None) -> str:
    """Return the description of a batch of these shapes, for messages; None for no batch."""
    if shapes is None:
        return "no more batch"
    return f"a batch of {', '.join(f'{name} {list(shape)}' for name, shape in shapes.items())}"


def _unlike_rows(given: Mapping[str, Any], parts: Parts) -> list[Problem]:
    """Return the arrays with other numbers of rows than the first one, unless `input_specs` declares such a batch."""
    found = list(unlike_rows(given))
    declared = found and len(set(rows_of(dict(parts.spec.FlattenItems())).values())) > 1
    return [] if declared else found


def _other_form(given: Mapping[str, Any], parts: Parts, data: BaseInput, *, decoding: bool) -> Iterator[Problem]:
    """Yield what a batch lacks, and the arrays with more or fewer dimensions than specified.

    An array (B, 1) where the model expects (B,) can make (B, B) of a difference. The sizes of dimensions may vary.
    """
    if decoding or not parts.train.enforce_input_specs:
        return
    for name, leaf in parts.spec.FlattenItems():
        if name not in given:
            if data.hparams.is_training:
                yield name, f"is missing in a batch, which has: {', '.join(given)}.", "Give the same arrays every time."
        elif np.ndim(given[name]) != len(leaf.shape):
            problem = f"has the shape {list(np.shape(given[name]))}, but {list(leaf.shape)} is specified."
            yield name, problem, "Give it as many dimensions, or set train.enforce_input_specs=False."


def _warn_of_wide(given: Mapping[str, Any], data: BaseInput) -> None:
    """Warn of integers that do not fit into 32 bits: JAX keeps only their lowest bits. The model may ignore them."""
    for name, array in given.items():
        kept = jax.dtypes.canonicalize_dtype(array.dtype) if isinstance(array, np.ndarray) else None
        if kept is None or kept == array.dtype or array.dtype.kind not in "iu" or not array.size:
            continue
        limits = np.iinfo(kept)
        if array.min() < limits.min or array.max() > limits.max:
            log.warning(
                f"{data.name}.{name}: has integers of more than 32 bits, of which JAX keeps the lowest 32. If the "
                "model reads them, give numbers that fit.",
                once=True,
            )
