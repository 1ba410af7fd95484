"""Batches to score or predict on: each sample once, among others of its length, and the way back to file order."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.ahead import ahead
from xdpx.processors.base import Batch, Processor
from xdpx.processors.samples import Samples

BATCHES_AHEAD = 4
SAME_EVERY_TIME = 0
"""The epoch of evaluation: noise on a sample is the same at every evaluation of a run."""


class EvaluationData:
    """Samples cut into batches. Longest first, so that too large a batch shows at once; padding is little.

    Args:
        samples: of a store, or made from raw text.
        processor: collates them.
        batch_size: samples per batch.
        max_steps: look only at so many batches' worth of samples, from the first one on.
        seed: of the run, for processors that add noise.
        pad_multiple: widths become a multiple of this.
    """

    def __init__(
        self,
        samples: Samples,
        processor: Processor,
        *,
        batch_size: int,
        max_steps: int | None = None,
        seed: int = 0,
        pad_multiple: int = 1,
    ) -> None:
        self.samples = samples
        self.processor = processor
        self.batch_size = batch_size
        self.seed = seed
        self.pad_multiple = pad_multiple
        size = len(samples) if max_steps is None else min(len(samples), max_steps * batch_size)
        self._order = np.arange(size)
        if "length" in samples:
            self._order = np.argsort(-samples.lengths[:size].astype(np.int64), kind="stable")

    @property
    def num_samples(self) -> int:
        """Number of samples in all batches."""
        return len(self._order)

    def __len__(self) -> int:
        return -(-len(self._order) // self.batch_size)

    def __iter__(self) -> Generator[tuple[NDArray[np.int64], Batch]]:
        """Yield (rows of the samples in the file, batch), collated ahead in a thread."""
        return ahead(self._produce, depth=BATCHES_AHEAD)

    def _produce(self, _stop: Event) -> Iterator[tuple[NDArray[np.int64], Batch]]:
        for start in range(0, len(self._order), self.batch_size):
            rows = self._order[start : start + self.batch_size]
            yield (
                rows,
                self.processor.collate(
                    self.samples.take(rows), epoch=SAME_EVERY_TIME, seed=self.seed, pad_multiple=self.pad_multiple
                ),
            )


def in_file_order(rows: list[NDArray[np.int64]], values: list[NDArray[Any]]) -> NDArray[Any]:
    """Join what was computed for each batch, in the order of the file.

    Args:
        rows: of each batch, as `EvaluationData` gave them.
        values: of each batch, a row per sample.
    """
    return np.concatenate(values)[np.argsort(np.concatenate(rows), kind="stable")]
