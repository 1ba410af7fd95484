"""Batches to score or predict on: each sample once, among others of its length, and the way back to file order."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from copy import copy
from threading import Event
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.ahead import ahead
from xdpx.datasets.training_data import Ranks
from xdpx.processors.base import Batch, Processor
from xdpx.processors.randomness import key, permute
from xdpx.processors.samples import Ragged, Samples

BATCHES_AHEAD = 4
WIDTH_STEP, BERT_POSITIONS = 8, 512
SAME_EVERY_TIME = 0
"""The epoch of evaluation: noise on a sample is the same at every evaluation of a run."""

DRAWN = "drawn"
"""Key of a batch that a sampler put together, so that its rows stand to one another as in training."""


SURPLUS = "surplus"
"""Key of a batch that is scored elsewhere, too, and counts there: processes go through a model together that they share
out."""


class EvaluationData:
    """Samples cut into batches. Longest first, so that too large a batch shows at once; padding is little.

    Args:
        samples: of a store, or made from raw text.
        processor: collates them.
        batch_size: samples per batch.
        max_steps: look only at so many batches' worth of samples, from the first one on.
        seed: of the run, for processors that add noise.
        pad_multiple: widths become a multiple of this.
        drawn: rows of each batch, where a sampler decided them; None: every row once.
        shuffled: with `max_steps`, look at samples from everywhere, the same at every evaluation.
        alike: only samples share a batch that have the same widths alone, so that no sample is padded for another.
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
        """Return the batches of one process among those that they are dealt out to in turn.

        Args:
            ranks: which process this is.
            equally: whether all are given as many: where one would have less, it is given the last batch once more,
                as `SURPLUS`.
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
        """Return the rows whose texts are all padded to the same widths, the longest first."""
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
        """Yield (rows of the samples in the file, batch), collated ahead in a thread where there are several."""
        if len(self._batches) + len(self._surplus) == 1:
            return self._produce(Event())
        return ahead(self._produce, depth=BATCHES_AHEAD)

    def _produce(self, _stop: Event) -> Generator[tuple[NDArray[np.int64], Batch]]:
        for index, rows in enumerate([*self._batches, *self._surplus]):
            batch = self.processor.collate(
                self.samples.take(rows), epoch=SAME_EVERY_TIME, seed=self.seed, pad_multiple=self.pad_multiple
            )
            batch = {**batch, DRAWN: True} if self._is_drawn else batch
            yield rows, {**batch, SURPLUS: True} if index >= len(self._batches) else batch


def exact_width(processor: Processor, positions: int | None) -> int:
    """Return what the widths of batches are multiples of where rows are to get the same bits in each (`alike`).

    Args:
        processor: collates them; where it gives several texts, each with its width, steps are wider: else few rows
            would share their widths.
        positions: how many the network has; None where its config does not say.
    """
    longest, texts = processor.parameters.max_len, list(processor.schema.values()).count("ragged int32")
    step = WIDTH_STEP * max(1, texts)
    return step if -(-longest // step) * step <= (positions or max(longest, BERT_POSITIONS)) else 1


def in_file_order(rows: list[NDArray[np.int64]], values: list[NDArray[Any]]) -> NDArray[Any]:
    """Join what was computed for each batch, in the order of the file.

    Args:
        rows: of each batch, as `EvaluationData` gave them.
        values: of each batch, a row per sample.
    """
    return np.concatenate(values)[np.argsort(np.concatenate(rows), kind="stable")]
