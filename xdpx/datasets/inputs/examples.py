"""The examples of a split of a task as token rows: encoded, named as features, trimmed, with end tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, did_you_mean, refusal
from xdpx.datasets.inputs.codecs import Codec
from xdpx.datasets.inputs.order import Rows
from xdpx.datasets.inputs.seqio_tasks import Task
from xdpx.datasets.inputs.sources import Column, Columns, Source, named
from xdpx.processors.samples import Ragged, Samples, concatenate, offsets_of

Lengths = dict[str, NDArray[np.int64]]


class Examples:
    """Token rows of one split of one task.

    Attributes:
        task: the task.
        lengths: maximum number of tokens of each feature.
    """

    def __init__(
        self, task: Task, split: str, lengths: Mapping[str, int], *, limit: int | None = None, trim: bool = True
    ) -> None:
        self.task = task
        self.split = split
        self.lengths = dict(lengths)
        self._limit = limit
        self._trim = trim

    @cached_property
    def source(self) -> Source:
        """The source of the examples, opened on first use."""
        return self.task.source_of(self.split)

    @cached_property
    def codec(self) -> Codec | None:
        """The codec for columns of texts, None without a vocabulary."""
        return self.task.codec()

    @cached_property
    def size(self) -> int:
        """Number of examples. Raises ConfigError if there is none."""
        whole = self._whole
        count = self.source.num_examples if whole is None else len(next(iter(whole.values())))
        count = count if self._limit is None else min(count, self._limit)
        if not count:
            raise self._refused(f"has no example in split '{self.split}'.", "Check its source.")
        return count

    @cached_property
    def _whole(self) -> dict[str, Ragged] | None:
        """All features, if the source is in memory; then texts are encoded once instead of once per epoch."""
        columns = self.source.whole()
        if columns is None:
            if self.task.hparams.chunk is not None:
                problem = f"cannot cut a {type(self.source).__name__} into chunks: it would have to be read whole."
                remedy = "Use NumpyFiles, StoreFile or TextFiles, or a converter that packs."
                raise self._refused(problem, remedy, key=".chunk")
            return None
        features = self._features(columns)
        chunk = self.task.hparams.chunk
        if chunk is not None:
            features = {name: _chunks(rows, chunk) for name, rows in features.items()}
        counts = {name: len(rows) for name, rows in features.items()}
        if len(set(counts.values())) > 1:
            remedy = "Give every column for every example; a `preprocess` has to keep the same rows of each."
            raise self._refused(f"has features with different numbers of examples: {counts}.", remedy)
        return features

    @property
    def is_at_hand(self) -> bool:
        """Whether lengths are known without reading an example."""
        return self._whole is not None

    def take(self, rows: Rows) -> dict[str, Ragged]:
        """Return the features of some examples, trimmed and with end tokens as the task requires."""
        whole = self._whole
        if whole is None:
            features = self._features(self.source.take(rows))
            for column in features.values():
                if len(column) != len(rows):
                    problem = f"makes {len(column)} examples of {len(rows)}, from a source that is not read whole."
                    remedy = "Let it keep every example, or remove examples in the source."
                    raise self._refused(problem, remedy, key=".preprocess")
        else:
            features = {name: column.take(rows) for name, column in whole.items()}
        return {name: self._ended(name, column) for name, column in features.items()}

    def row_lengths(self, rows: Rows) -> Lengths:
        """Return the number of tokens of each feature of some examples, without reading them if possible."""
        whole = self._whole
        if whole is None:
            return {name: column.lengths.astype(np.int64) for name, column in self.take(rows).items()}
        found = {name: column.offsets[rows + 1] - column.offsets[rows] for name, column in whole.items()}
        return {name: self._ended_lengths(name, lengths) for name, lengths in found.items()}

    def untrimmed(self, row: int, feature: str) -> list[int]:
        """Return all tokens of a feature of one example, untrimmed and without an end token."""
        whole = self._whole
        one = np.array([row])
        column = self._features(self.source.take(one))[feature] if whole is None else whole[feature].take(one)
        return list(column.row(0).tolist())

    def raw(self, row: int) -> dict[str, Any]:
        """Return one example as in the source. Raises ConfigError if `preprocess` has removed or added examples."""
        whole = self._whole
        if whole is not None and self.task.hparams.chunk is None:
            count = len(next(iter(whole.values())))
            if count != self.source.num_examples:
                problem = f"makes {count} of {self.source.num_examples} examples, so they cannot be matched."
                remedy = "Remove or add examples in the source, or do without `postprocess`."
                raise self._refused(problem, remedy, key=".preprocess")
        columns = self.source.take(np.array([row]))
        return {name: c.row(0).tolist() if isinstance(c, Ragged) else c[0] for name, c in columns.items()}

    def _features(self, columns: Columns) -> dict[str, Ragged]:
        p = self.task.hparams
        if p.preprocess is not None:
            columns = p.preprocess(columns)
        found = {}
        for feature in self.lengths:
            name = p.features.get(feature, feature)
            if name not in columns:
                problem = f"needs a column '{name}'; the source has: {named(columns)}."
                remedy = did_you_mean(name, columns, rest=f"Write features={{'{feature}': '<column>'}}.")
                raise self._refused(problem, remedy, key=f".{feature}")
            found[feature] = self._encoded(feature, columns[name])
        return found

    def _encoded(self, feature: str, column: Column) -> Ragged:
        if isinstance(column, Ragged):
            return column
        if not isinstance(column, list):
            if self.task.hparams.chunk is not None:  # one long row of tokens
                return Ragged(column, np.array([0, len(column)]))
            return Ragged(column, np.arange(len(column) + 1))
        if self.codec is None:
            problem = f"feature '{feature}' is text, but there is no vocabulary."
            remedy = "Give vocabulary=HouseTokenizer.HParams(...) or Characters.HParams(...)."
            raise self._refused(problem, remedy, key=".vocabulary")
        return self.codec.encode(column)

    def _room(self, name: str) -> int:
        """Return the maximum number of tokens of a feature without the end token."""
        return self.lengths[name] - (name in self.task.hparams.add_eos)

    def _ended(self, name: str, column: Ragged) -> Ragged:
        room = self._room(name)
        if not self._trim and len(column) and int(column.lengths.max()) > room:
            raise self._too_long(name, int(column.lengths.max()))
        column = column.cut(room)
        return _appended(column, self.task.hparams.eos_id) if name in self.task.hparams.add_eos else column

    def _ended_lengths(self, name: str, lengths: Rows) -> Rows:
        room = self._room(name)
        if not self._trim and len(lengths) and int(lengths.max()) > room:
            raise self._too_long(name, int(lengths.max()))
        return np.minimum(lengths, room) + (name in self.task.hparams.add_eos)

    def _too_long(self, name: str, found: int) -> ConfigError:
        problem = f"an example has {found} tokens, but {self.lengths[name]} are allowed."
        remedy = "Raise task_feature_lengths, or let trim_output_features be True."
        return self._refused(problem, remedy, key=f".{name}")

    def _refused(self, problem: str, remedy: str, *, key: str = "") -> ConfigError:
        return refusal(f"task {self.task.hparams.name}{key}", problem, remedy)


def _chunks(rows: Ragged, chunk: int) -> Ragged:
    """Return all rows concatenated and split into pieces of `chunk` values; the last one may be shorter."""
    total = len(rows.values)
    return Ragged(rows.values, np.append(np.arange(0, total, chunk), total))


def _appended(rows: Ragged, value: int) -> Ragged:
    """Return rows with one value appended to each."""
    offsets = offsets_of(rows.lengths + 1)
    values = np.full(offsets[-1], value, rows.values.dtype)
    values[rows.places(offsets[:-1])] = rows.values
    return Ragged(values, offsets)


class Pool:
    """The examples of one task, or of all tasks of a mixture, as one collection.

    Attributes:
        parts: the examples of each task.
    """

    def __init__(self, parts: Sequence[Examples]) -> None:
        self.parts = list(parts)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of examples of each task."""
        return tuple(part.size for part in self.parts)

    def refuse_different_codecs(self) -> None:
        """Raise ConfigError if tasks have different vocabularies, so that an id would mean one token or another."""
        with_codec = [part for part in self.parts if part.codec is not None] if len(self.parts) > 1 else []
        for part in with_codec[1:]:
            first = with_codec[0]
            if first.codec and part.codec and first.codec.digest != part.codec.digest:
                problem = (
                    f"differs from that of task '{first.task.hparams.name}': the same id would mean different tokens."
                )
                fault = Fault(
                    f"task {part.task.hparams.name}.vocabulary", problem, "Give all tasks of a mixture the same."
                )
                raise ConfigError(THIS_RUN, [fault])

    def take(self, which: Rows, rows: Rows) -> dict[str, Ragged]:
        """Return the features of example rows[i] of task which[i], for all i in order."""
        if len(self.parts) == 1:
            return self.parts[0].take(rows)
        taken, places = [], []
        for number, part in enumerate(self.parts):
            here = np.flatnonzero(which == number)
            if len(here):
                taken.append(Samples(part.take(rows[here])))
                places.append(here)
        back = np.argsort(np.concatenate(places), kind="stable")
        joined = concatenate(taken).take(back)
        return {name: joined.ragged(name) for name in joined.columns}

    def measured(self, which: Rows, rows: Rows) -> tuple[Lengths, dict[str, Ragged] | None]:
        """Return (number of tokens of each feature of each example, the examples if they had to be read, else None)."""
        if all(part.is_at_hand for part in self.parts):
            return self.row_lengths(which, rows), None
        taken = self.take(which, rows)
        return {name: column.lengths.astype(np.int64) for name, column in taken.items()}, taken

    def row_lengths(self, which: Rows, rows: Rows) -> Lengths:
        """Return the number of tokens of each feature of each example."""
        if len(self.parts) == 1:
            return self.parts[0].row_lengths(rows)
        lengths = {name: np.zeros(len(rows), np.int64) for name in self.parts[0].lengths}
        for number, part in enumerate(self.parts):
            here = np.flatnonzero(which == number)
            if len(here):
                for name, found in part.row_lengths(rows[here]).items():
                    lengths[name][here] = found
        return lengths
