"""Inspect the inputs of an experiment before training: decoded rows of host i of n, and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from xdpx.config.faults import shortened
from xdpx.config.hparams import BaseHParams
from xdpx.datasets.inputs.base_input import BaseInput, with_hosts
from xdpx.datasets.inputs.rows import PROVENANCE, SAMPLE_WEIGHTS
from xdpx.datasets.inputs.seqio_metrics import origins
from xdpx.logger import log
from xdpx.utils.nested_map import NestedMap

SHOWN = ("labels", "ids")
WIDEST = 240


def peek_input(template: BaseHParams, *, host: int = 0, num_hosts: int = 1, num_batches: int = 1) -> Iterator[str]:
    """Yield lines that describe the first batches of one host: the arrays, and each row as text with its weight.

    Args:
        template: HParams of any input.
        host: index of the host, from 0.
        num_hosts: number of hosts; both override the template.
        num_batches: number of batches to show.
    """
    yield from peek_inputs([template], host=host, num_hosts=num_hosts, num_batches=num_batches)


def peek_inputs(templates: Iterable[Any], *, host: int = 0, num_hosts: int = 1, num_batches: int = 1) -> Iterator[str]:
    """Yield the lines of `peek_input` for all inputs of an experiment, and then those of `warnings_about`."""
    built: list[BaseInput] = []
    try:
        for template in templates:
            shown = template.clone().set(num_infeed_hosts=num_hosts, infeed_host_index=host)
            built.append(with_hosts(shown, host, num_hosts).Instantiate())
            yield from _first_batches(built[-1], num_batches)
        yield from (f"warning: {sentence}" for sentence in warnings_about(built))
    finally:
        for data in built:
            data.close()


def _first_batches(data: BaseInput, num_batches: int) -> Iterator[str]:
    yield f"{data.name}: host {data.host_index} of {data.num_hosts}"
    for number in range(num_batches):
        batch = data.peek_padded()
        if batch is None:
            yield f"The data end after {number} batches."
            return
        yield from describe_batch(data, data.get_next_padded(), number)


def describe_batch(data: BaseInput, batch: NestedMap, number: int) -> Iterator[str]:
    """Yield lines that describe a batch."""
    arrays = ", ".join(f"{path} {array.dtype}{list(array.shape)}" for path, array in batch.FlattenItems())
    yield f"batch {number}: {arrays}"
    for path, key in _token_arrays(batch):
        ids = batch.Get(path)
        texts = data.ids_to_strings(ids.reshape(-1, ids.shape[-1]), _lengths(batch, path), key)
        for row, text in enumerate(texts):
            yield f"  {path}[{row}]{_facts(batch, row)}: {shortened(text, WIDEST)!r}"


def _token_arrays(batch: NestedMap) -> Iterator[tuple[str, str | None]]:
    """Yield (path, child) of each array of tokens to show; the child is its name in a `MultiInput`, else None."""
    found = [path for path, _ in batch.FlattenItems() if path.split(".")[-1] in SHOWN]
    for path in found:
        first = path.split(".")[0]
        doubled = not path.endswith("labels") and f"{path.removesuffix('ids')}labels" in found
        if not doubled and np.ndim(batch.Get(path)) > 1:
            yield path, (None if first in {"src", "tgt"} or first == path else first)


def _lengths(batch: NestedMap, path: str) -> Any:
    """Return the length of each row without padding; None if there are no segment ids."""
    above = path.rpartition(".")[0]
    segments = batch.Get(f"{above}.segment_ids" if above else "segment_ids")
    if segments is None:
        return None
    used = segments.reshape(-1, segments.shape[-1]) > 0
    return np.where(used.any(axis=1), used.shape[1] - used[:, ::-1].argmax(axis=1), 0)


def _facts(batch: NestedMap, row: int) -> str:
    facts: list[str] = []
    if PROVENANCE in batch:
        found = origins(batch)[row] or [(-1, -1, -1)]
        numbers = ", ".join(str(index) for _, _, index in found)
        facts.append(f"example{'s'[: len(found) > 1]} {numbers} of shard {found[0][0]}")
    if SAMPLE_WEIGHTS in batch and batch[SAMPLE_WEIGHTS][row] != 1:
        facts.append(f"weight {batch[SAMPLE_WEIGHTS][row]:g}")
    return f" ({', '.join(facts)})" if facts else ""


def warnings_about(inputs: Iterable[BaseInput]) -> list[str]:
    """Return warnings about the inputs of one experiment, one sentence each.

    They are about different tokenizers, fixed seeds without a saved position, and positions restored by replaying.
    """
    inputs = list(inputs)
    alone = [sentence for look in (_lost_place, _replay) for sentence in map(look, inputs) if sentence]
    return [*_different_tokenizers(inputs), *alone]


def warn_about(inputs: Iterable[BaseInput]) -> None:
    """Log the warnings about the inputs of one experiment."""
    for sentence in warnings_about(inputs):
        log.warning(sentence, once=True)


def _different_tokenizers(inputs: list[BaseInput]) -> Iterator[str]:
    known = [(data, digest) for data in inputs if (digest := data.tokenizer_digest()) is not None]
    for data, digest in known[1:]:
        first, expected = known[0]
        if digest != expected:
            yield (
                f"{data.name} and {first.name} have different tokenizers ({digest[:8]}, {expected[:8]}): the same id "
                "means different tokens. Give both the same vocabulary."
            )


def _lost_place(data: BaseInput) -> str:
    p = data.hparams
    if not p.is_training or p.input_checkpointing_enabled or p.input_random_seed is None:
        return ""
    return (
        f"{data.name}: input_random_seed={p.input_random_seed} is fixed and input_checkpointing_enabled is False: an "
        "interrupted job sees the first data again. Save the position in checkpoints, or leave the seed out."
    )


def _replay(data: BaseInput) -> str:
    if not data.hparams.is_training or not data.hparams.input_checkpointing_enabled or not data.replay:
        return ""
    return (
        f"{data.name}: {data.replay}: a resumed job reads every batch before its position again, which takes as long "
        "as the first time and is right only if the same batches come again. Give it get_state and "
        "set_state, or set input_checkpointing_enabled=False to start the data over."
    )
