"""Batches for evaluation and prediction: each sample once, sorted by length, and results back in file order."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from copy import copy
from threading import Event
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.ahead import ahead
from xdpx.datasets.training_data import Ranks
from xdpx.processors.base import Batch, Processor, collated
from xdpx.processors.randomness import key, permute
from xdpx.processors.samples import Ragged, Samples

BATCHES_AHEAD = 4
WIDTH_STEP, BERT_POSITIONS = 8, 512
SAME_EVERY_TIME = 0
"""The epoch number of evaluations, so that the noise on a sample is the same at every evaluation of a run."""

DRAWN = "drawn"
"""Key of a batch composed by a sampler, whose rows belong together as in training."""


SURPLUS = "surplus"
"""Key of a batch that another process has and counts: with a sharded model, all processes need the same number of
forward passes."""


class EvaluationData:
    """Samples in batches of similar length, to reduce padding; longest first, so that lack of memory shows at once.

    Args:
        samples: of a store, or made from raw text.
        processor: collates them.
        batch_size: samples per batch.
        max_steps: use only this number of batches; by default of the first samples.
        seed: of the run, for processors that add noise.
        pad_multiple: widths are rounded up to a multiple of this.
        drawn: rows of each batch, chosen by a sampler; None: every row once.
        shuffled: with `max_steps`, use random samples, the same at every evaluation.
        alike: put only samples with the same padded widths into a batch, so that results do not depend on the batch.
    """

    def __init__(  # noqa: PLR0913 - what decides a batch, all of it named by the caller
        self,
        samples: Samples,
        processor: Processor,
        *,
        batch_size: int,
        max_steps: int | None = None,
        seed: int = 0,
        pad_multiple: int = 1,
        drawn: Sequence[NDArray[np.int64]] | None = None,
        shuffled: bool = False,
        alike: bool = False,
    ) -> None:
        self.samples = samples
        self.processor = processor
        self.batch_size = batch_size
        self.seed = seed
        self.pad_multiple = pad_multiple
        self._is_shuffled = shuffled
        self._is_alike = alike
        self._is_drawn = drawn is not None
        self._surplus: list[NDArray[np.int64]] = []
        self._batches = self._by_length(max_steps) if drawn is None else list(drawn[:max_steps])

    def share(self, ranks: Ranks, *, equally: bool = False) -> Self:
        """Return a copy with the batches of this process, which are assigned to processes in turn.

        Args:
            ranks: of this process.
            equally: whether all processes get the same number: one with fewer gets the last batch in addition, marked
                by `SURPLUS`.
        """
        mine = copy(self)
        mine._batches = self._batches[ranks.rank :: ranks.world_size]
        if equally and len(mine._batches) * ranks.world_size < len(self._batches):
            mine._surplus = self._batches[-1:]
        return mine

    def _by_length(self, max_steps: int | None) -> list[NDArray[np.int64]]:
        size, step = len(self.samples), self.batch_size
        size = size if max_steps is None else min(size, max_steps * step)
        order = np.arange(size)
        if self._is_shuffled:
            order = permute(order, len(self.samples), key(SAME_EVERY_TIME))
        if self._is_alike:
            alike = self._of_one_width(order)
            return [rows[start : start + step] for rows in alike for start in range(0, len(rows), step)]
        if "length" in self.samples:
            order = order[np.argsort(-self.samples.lengths[order].astype(np.int64), kind="stable")]
        return [order[start : start + step] for start in range(0, size, step)]

    def _of_one_width(self, order: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return groups of rows with the same padded widths of all texts, the longest first."""
        columns = {name: each for name, each in self.samples.columns.items() if name != "target"}
        lengths = [each.lengths for each in columns.values() if isinstance(each, Ragged)]
        lengths += [self.samples.lengths] if "length" in self.samples else []
        widths = np.stack([-(-np.asarray(each, np.int64)[order] // self.pad_multiple) for each in lengths])
        sorted_by = np.lexsort(-widths)
        widths, order = widths[:, sorted_by], order[sorted_by]
        return np.split(order, np.flatnonzero((np.diff(widths) != 0).any(axis=0)) + 1) if len(order) else []

    @property
    def num_samples(self) -> int:
        """Number of samples in all batches of this process."""
        return sum(map(len, self._batches))

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Generator[tuple[NDArray[np.int64], Batch]]:
        """Yield (rows of the samples in the file, batch), prefetched by a thread if there are several batches."""
        if len(self._batches) + len(self._surplus) == 1:
            return self._produce(Event())
        return ahead(self._produce, depth=BATCHES_AHEAD)

    def _produce(self, _stop: Event) -> Generator[tuple[NDArray[np.int64], Batch]]:
        for index, rows in enumerate([*self._batches, *self._surplus]):
            samples = self.samples.take(rows)
            batch = collated(
                self.processor, samples, epoch=SAME_EVERY_TIME, seed=self.seed, pad_multiple=self.pad_multiple
            )
            batch = {**batch, DRAWN: True} if self._is_drawn else batch
            yield rows, {**batch, SURPLUS: True} if index >= len(self._batches) else batch


def exact_width(processor: Processor, positions: int | None) -> int:
    """Return the `pad_multiple` for `alike`, with which the result of a row does not depend on its batch, bit for bit.

    Args:
        processor: collates samples. If it has several texts with separate widths, the multiple is larger, because
            otherwise few rows would share all widths.
        positions: maximum number of positions of the network; None if its config does not have it.
    """
    longest, texts = processor.parameters.max_len, list(processor.schema.values()).count("ragged int32")
    step = WIDTH_STEP * max(1, texts)
    return step if -(-longest // step) * step <= (positions or max(longest, BERT_POSITIONS)) else 1


def in_file_order(rows: list[NDArray[np.int64]], values: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the values of all batches, concatenated in file order.

    Args:
        rows: of each batch, as yielded by `EvaluationData`.
        values: of each batch, one row per sample.
    """
    return np.concatenate(values)[np.argsort(np.concatenate(rows), kind="stable")]
