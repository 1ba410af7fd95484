"""Evaluation inputs over finite iterables: shared among hosts, and padded so that all stop at the same batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from xdpx.config.hparams import BaseHParams
from xdpx.datasets.inputs.adaptors import LingvoInputAdaptor
from xdpx.datasets.inputs.base_input import State, refused, state_number
from xdpx.datasets.inputs.opening import Opening, open_batches
from xdpx.datasets.inputs.order import num_batches, part_of
from xdpx.datasets.inputs.rows import (
    SAMPLE_WEIGHTS,
    as_batch,
    copied,
    filled_to,
    join_rows,
    num_rows,
    take_rows,
    with_sample_weights,
    without_weight,
)
from xdpx.utils.nested_map import NestedMap


class LingvoEvalAdaptor(LingvoInputAdaptor):
    """Reads finite data into memory; the last global batch is padded by rows of weight 0; each host takes its part."""

    class HParams(LingvoInputAdaptor.HParams):
        """Fields of the adaptor."""

    def __init__(self, hparams: BaseHParams) -> None:
        super().__init__(hparams)
        self._batch = 0
        if hparams.is_training or not self.window.resets:
            problem = f"is '{self.window}', is_training {hparams.is_training}; finite data would be repeated."
            raise refused(hparams, "eval_window", problem, "Write eval_window='full_epoch' (reset_for_eval=True).")

    def _check_batch_size(self) -> None:
        if self.hparams.batch_size is None:
            raise refused(self.hparams, "batch_size", "is missing.", "Give the number of rows per host in a batch.")

    @cached_property
    def _rows(self) -> NestedMap:
        """All rows of the data; every host reads all of them."""
        batches = list(self._inner_batches())
        if not batches:
            raise refused(self.hparams, "input", "yields no batch.", "Check what it reads.")
        try:
            return join_rows(batches)
        except ValueError as error:
            remedy = "Pad all its batches to one width."
            raise refused(self.hparams, "input", f"yields batches of different shapes ({error}).", remedy) from error

    def _inner_batches(self) -> Iterator[NestedMap]:
        seed = self._seed if self._seed is None else 1  # all hosts must see the same order
        for item in open_batches(self.hparams.input, Opening(0, 1, seed, 0)):
            yield with_sample_weights(copied(as_batch(item)))

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of one epoch, the same on all hosts."""
        return num_batches(self._num_samples(), self.hparams.batch_size, self.num_hosts, pad=True)

    def _num_samples(self) -> int:
        return num_rows(self._rows)

    def get_next(self) -> NestedMap:
        """Return this host's rows of the next batch. Raises StopIteration after `batches_per_epoch`."""
        limit = self.hparams.num_batches
        if self._batch >= self.batches_per_epoch or (limit is not None and self._batch >= limit):
            raise StopIteration
        batch = self._part(self._batch)
        self._batch += 1
        return batch

    def _part(self, number: int) -> NestedMap:
        size, count = self.hparams.batch_size, self._num_samples()
        places = part_of(size, self.num_hosts, self.host_index, first=number * self.global_batch_size)
        real = int((places < count).sum())
        whole = take_rows(self._rows, np.where(places < count, places, 0))
        if real == size:
            return whole
        return join_rows([take_rows(whole, slice(0, real)), without_weight(take_rows(whole, slice(real, None)))])

    def reset(self) -> None:
        """Start again from the first batch."""
        super().reset()
        self._batch = 0

    def get_state(self) -> State:
        """Return the number of batches returned so far, and of hosts."""
        return {"batch": self._batch, "hosts": self.num_hosts}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a position. Raises ValueError for a state of another number of hosts."""
        if state.get("hosts") != self.num_hosts:
            raise ValueError(f"{self.name}: the state is of {state.get('hosts')!r} hosts, not of {self.num_hosts}.")
        self.reset()
        self._batch = state_number(state, "batch", self)


class LingvoLazyEvalAdaptor(LingvoEvalAdaptor):
    """As `LingvoEvalAdaptor`, without reading all data into memory: each host reads them and keeps its own batches."""

    class HParams(LingvoEvalAdaptor.HParams):
        """Fields of the adaptor.

        Attributes:
            num_samples: number of rows of the data, which must be given because the data are not read in advance.
            weight_field: name of the array with the weights of rows.
        """

        num_samples: int = 0
        weight_field: str = SAMPLE_WEIGHTS

    def __init__(self, hparams: BaseHParams) -> None:
        super().__init__(hparams)
        if hparams.num_samples < 1:
            remedy = "Give the number of rows; LingvoEvalAdaptor counts them, by reading all."
            raise refused(hparams, "num_samples", f"is {hparams.num_samples}.", remedy)
        self._reader: Iterator[NestedMap] | None = None
        self._rest: list[NestedMap] = []
        self._place = 0
        self._first: NestedMap | None = None

    def _num_samples(self) -> int:
        return int(self.hparams.num_samples)

    def _part(self, number: int) -> NestedMap:
        size, count = self.hparams.batch_size, self._num_samples()
        first = number * self.global_batch_size + self.host_index * size
        self._read_to(min(first, count))
        parts = list(self._read(min(first + size, count) - min(first, count)))
        if not parts:
            self._read_to(1)
            if self._first is None:
                raise refused(self.hparams, "input", "yields no batch.", "Check what it reads.")
            parts = [without_weight(self._weighed(self._first))]
        return filled_to(parts, size)

    def _read_to(self, place: int) -> None:
        """Skip rows up to a position; to go back, read from the start."""
        if place < self._place:
            self._reader = None
        for _ in self._read(place - self._place):
            pass

    def _read(self, count: int) -> Iterator[NestedMap]:
        """Yield the next `count` rows, in pieces of any size."""
        while count > 0:
            if not self._rest:
                self._rest = [self._next_piece()]
            piece = self._rest.pop()
            rows = num_rows(piece)
            if rows > count:
                self._rest = [take_rows(piece, slice(count, None))]
                piece = take_rows(piece, slice(0, count))
            self._place += min(rows, count)
            count -= rows
            yield piece

    def _next_piece(self) -> NestedMap:
        if self._reader is None:
            self._reader, self._place, self._rest = self._inner_batches(), 0, []
        piece = next(self._reader, None)
        if piece is None:
            problem = f"is {self.hparams.num_samples}, but the data end after {self._place} rows."
            raise refused(self.hparams, "num_samples", problem, "Give the right number, the same on all hosts.")
        piece = self._weighed(piece)
        if self._first is None:
            self._first = take_rows(piece, slice(0, 1))
        return piece

    def _weighed(self, batch: NestedMap) -> NestedMap:
        """Return a batch with the weights of rows taken from `weight_field`."""
        name = self.hparams.weight_field
        if name not in batch:
            raise refused(self.hparams, "weight_field", f"is '{name}'; a batch has {', '.join(batch)}.", "Name one.")
        weighed = NestedMap(batch)
        weighed[SAMPLE_WEIGHTS] = np.asarray(batch[name], np.float32)
        return weighed


PaddedEvalAdaptor = LingvoEvalAdaptor
LazyEvalAdaptor = LingvoLazyEvalAdaptor
