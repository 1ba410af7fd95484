"""What every processor does: turn numbered fields into a sample once, and samples into a padded batch at every step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.processors.samples import Column, Ragged, Samples, multi_hot, offsets_of
from xdpx.tokenizers.vocabulary import Vocabulary

Fields = Mapping[str, Sequence[int]]
"""Encoded text fields of one record, by the names in `Processor.text_fields`."""

Batch = dict[str, Any]
"""Numpy arrays: `id` (B,), `net_input` {name: array} for the model, `target`, `query_id`; `ntokens` without padding."""


class Processor(ABC):
    """From numbered fields to a sample, from samples to a batch. Attention masks keep padding out of every result."""

    class Parameters(BaseParameters):
        """What all processors share. What is None comes from the vocabulary or from `meta.hjson`."""

        max_len: int = param(doc="Longest sample, in tokens with special ones; what is longer is cut.", ge=1)
        min_len: int = param(1, doc="Shortest width that a batch is padded to, in tokens.", ge=1)
        pad_word: str = param("[PAD]", doc="Token that fills short samples; models never attend to it.")
        unk_word: str = param("[UNK]", doc="Token for what the vocabulary lacks.")
        pad_index: int | None = param(None, doc="Id of `pad_word`; from the vocabulary.", ge=0)
        vocab_size: int | None = param(None, doc="Number of tokens; from the vocabulary.", ge=1)
        num_classes: int | None = param(None, doc="Number of labels; from the target map.", ge=1)
        target_unk: str | None = param(None, doc="Label to use for labels that the target map lacks.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse a least width beyond the greatest, and one word for two purposes."""
            found = []
            if self.min_len > self.max_len:
                problem = f"is {self.min_len}, above max_len {self.max_len}. Use at most {self.max_len}."
                found.append(("min_len", problem))
            if self.pad_word == self.unk_word:
                found.append(("unk_word", f"is '{self.unk_word}', as pad_word is. Use two different words."))
            return found

    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[Mapping[str, str]] = {}
    special_words: ClassVar[tuple[str, ...]] = ()
    """Tokens that a vocabulary must have beside those for padding and for the unknown."""
    num_special: ClassVar[int] = 0
    """How many tokens of `max_len` are taken by special ones."""
    learns_labels: ClassVar[bool] = False
    """Whether samples are made to learn labels from, so that training data without any are a mistake."""
    reads_marks: ClassVar[int] = 0
    """Marks of `xdpx.loaders.marks` that may stand on the ids in `numerize`, and do where the loader knows them."""

    def __init__(self, parameters: Parameters, *, vocabulary: Vocabulary | None = None) -> None:
        self.parameters: Any = parameters
        self.vocabulary = vocabulary
        if parameters.max_len <= self.num_special:
            problem = f"is {parameters.max_len}, but {self.num_special} of these tokens are special ones."
            raise ConfigError(THIS_RUN, [Fault("max_len", problem, f"Use at least {self.num_special + 1}.")])
        self.pad_index = self._token_index("pad_index", parameters.pad_index, parameters.pad_word)

    def columns(self, *, labelled: bool) -> dict[str, str]:
        """Return the schema of the samples: this processor's own columns, `length`, and `target` if labelled."""
        target = {"target": "int64"} if labelled else {}
        return {**self.schema, "length": "int32", **target}

    @abstractmethod
    def numerize(self, fields: Fields, target: int | None) -> dict[str, Any] | None:
        """Make a sample with the values of `columns`, or None to drop the record. Runs once, in preprocessing."""

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[Mapping[str, Column], NDArray[np.int64]]:
        """Make samples of many records. Returns (their columns, index of the record that each came from)."""
        samples: list[dict[str, Any]] = []
        kept: list[int] = []
        for index in range(len(next(iter(fields.values())))):
            record = {name: rows.row(index).tolist() for name, rows in fields.items()}
            sample = self.numerize(record, None if targets is None else int(targets[index]))
            if sample is not None:
                samples.append(sample)
                kept.append(index)
        return Samples.from_dicts(samples, self.columns(labelled=targets is not None)).columns, np.array(kept, np.int64)

    def with_label_sets(self, samples: Samples, sets: Ragged) -> Samples:
        """Return samples whose `target` is the row of classes it was the number of. Override where windows share it."""
        return samples.replaced("target", sets.take(samples.numbers("target")))

    @abstractmethod
    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Pad samples to the longest of them and add the noise of this epoch.

        Args:
            samples: those of the batch, as a store's `take` gives them.
            epoch: 1-based in training; 0, for noise that stays the same, in evaluation.
            seed: of the run.
            training: whether the batch is trained on.
            pad_multiple: widths become a multiple of this; 8 makes mixed precision fast.
        """

    def split(self, batch: Mapping[str, Any], parts: int) -> list[Batch]:
        """Cut a batch into at most `parts` smaller ones, in order, of whole samples: together they are the batch.

        Widths stay, so every sample is what it was. There are fewer parts when there are fewer samples.
        """
        rows = len(batch["id"])
        edges = [rows * part // parts for part in range(parts + 1)]
        return [self._rows(batch, start, stop) for start, stop in pairwise(edges) if start < stop]

    def _rows(self, batch: Mapping[str, Any], start: int, stop: int) -> Batch:
        """Return the samples from `start` to before `stop`. Override it where an array has no row for each sample."""
        cut = {name: value[start:stop] for name, value in batch.items() if isinstance(value, np.ndarray)}
        net_input = {name: value[start:stop] for name, value in batch["net_input"].items()}
        return {**batch, **cut, "net_input": net_input, "ntokens": self._num_tokens(net_input)}

    def _num_tokens(self, net_input: Mapping[str, Any]) -> int:
        """Count tokens without padding: where the masks, which are the truth values of the input, are true."""
        return sum(int(value.sum()) for value in net_input.values() if value.dtype == np.bool_)

    def full_length(self, fields: Fields) -> int:
        """Return the length in tokens that a record would have if nothing were cut; too long when above `max_len`."""
        return sum(len(fields[name]) for name in self.text_fields) + self.num_special

    def meta(self) -> dict[str, Any]:
        """Return what training inherits: the declared parameters, with ids and sizes filled in from the vocabulary."""
        known: dict[str, Any] = {key: value for key, value in self.parameters.model_dump().items() if value is not None}
        known["pad_index"] = self.pad_index
        if self.vocabulary is not None:
            known["vocab_size"] = len(self.vocabulary)
        return known

    def decode(self, sample: Mapping[str, Any]) -> str:
        """Return the text of a sample's tokens, for people to look at."""
        rows = [sample[name] for name, kind in self.schema.items() if kind == "ragged int32"]
        return " | ".join(self._text(row) for row in rows)

    def _text(self, ids: Sequence[int]) -> str:
        if self.vocabulary is None:
            return " ".join(map(str, ids))
        return " ".join(self.vocabulary.tokens[index] for index in ids)

    def _never_empty(self, rows: Ragged) -> Ragged:
        """Put one unknown token where a text has none: masked everywhere, it would have no features at all."""
        lengths = rows.lengths
        if lengths.all():
            return rows
        offsets = offsets_of(np.maximum(lengths, 1))
        values = np.full(offsets[-1], self._token_index("unk_word", None, self.parameters.unk_word), np.int32)
        values[rows.places(offsets[:-1])] = rows.values
        return Ragged(values, offsets)

    def _token_index(self, parameter: str, index: int | None, token: str) -> int:
        """Return the id a config names, or else that of the token in the vocabulary."""
        if index is not None:
            return index
        found = self.vocabulary.find(token) if self.vocabulary is not None else None
        if found is not None:
            return found
        where = "the vocabulary lacks it" if self.vocabulary is not None else "there is no vocabulary"
        remedy = "Add it to vocab.txt, or inherit the data's meta: `__parent__: ${data_dir}/meta`."
        raise ConfigError(THIS_RUN, [Fault(parameter, f"the id of '{token}' is not known: {where}.", remedy)])

    def _width(self, *lengths: NDArray[np.integer[Any]], pad_multiple: int) -> int:
        longest = max([int(each.max(initial=1)) for each in lengths])
        width: int = -(-max(longest, self.parameters.min_len) // pad_multiple) * pad_multiple
        return width

    def _tokens(self, rows: Ragged, pad_multiple: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Pad rows of ids. Returns (ids, which of them are no padding), both of shape (B, T)."""
        lengths = rows.lengths
        width = self._width(lengths, pad_multiple=pad_multiple)
        mask = np.arange(width) < lengths[:, None]
        ids = np.full(mask.shape, self.pad_index, np.int64)
        ids[mask] = rows.values
        return ids, mask

    def _targets(self, samples: Samples) -> NDArray[Any]:
        """Return the class of each sample, (B,); where rows have several labels, 1 for each of them, (B, C) float32."""
        column = samples.columns["target"]
        if not isinstance(column, Ragged):
            return column
        if self.parameters.num_classes is None:
            problem = "is missing, but samples with several labels need it."
            raise ConfigError(THIS_RUN, [Fault("num_classes", problem, "Inherit the data's meta.hjson.")])
        return multi_hot(column, self.parameters.num_classes)

    def _batch(self, samples: Samples, net_input: dict[str, Any], ntokens: int) -> Batch:
        batch: Batch = {"id": samples.ids, "net_input": net_input, "ntokens": ntokens}
        if "target" in samples:
            batch["target"] = self._targets(samples)
        if "query_id" in samples:
            batch["query_id"] = samples.numbers("query_id")
        return batch


class ColumnProcessor(Processor):
    """A processor that makes many samples at once, column by column. All that are shipped are."""

    @abstractmethod
    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[Mapping[str, Column], NDArray[np.int64]]:
        """Make samples of many records. Returns (their columns, index of the record that each came from)."""

    def numerize(self, fields: Fields, target: int | None) -> dict[str, Any] | None:
        """Make one sample, the first window of a record that becomes several, or None to drop the record."""
        rows = {name: Ragged(np.array(ids, np.int32), np.array([0, len(ids)])) for name, ids in fields.items()}
        columns, kept = self.numerize_many(rows, None if target is None else np.array([target]))
        return Samples(columns).sample(0) if len(kept) else None


def with_targets(
    columns: dict[str, Column], targets: NDArray[np.int64] | None
) -> tuple[dict[str, Column], NDArray[np.int64]]:
    """Add the targets, if there are any, to columns that hold every record; and the index of each record."""
    if targets is not None:
        columns["target"] = targets
    return columns, np.arange(len(columns["length"]))


def framed(frame: Sequence[int], rows: Sequence[Ragged], *, before: int) -> Ragged:
    """Lay the rows of several columns one behind the other, with special tokens around them.

    Args:
        frame: the special tokens: `before` of them in front of all, then one behind each column's row.
        rows: columns of equally many rows.
        before: how many tokens stand in front.

    Returns:
        Rows such as [CLS] first [SEP] second [SEP].
    """
    lengths = [each.lengths for each in rows]
    offsets = offsets_of(np.sum(lengths, axis=0) + len(frame))
    values = np.empty(offsets[-1], np.int32)
    place = offsets[:-1].copy()
    for token in frame[:before]:
        values[place] = token
        place += 1
    for each, length, token in zip(rows, lengths, frame[before:], strict=True):
        values[each.places(place)] = each.values
        place += length
        values[place] = token
        place += 1
    return Ragged(values, offsets)
