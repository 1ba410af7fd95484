"""Base classes of processors: convert encoded fields to samples once, and collate samples into batches at each step."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import ConfigError, refusal, wrong_return
from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.config.registry import are_shipped
from xdpx.logger import log
from xdpx.processors.samples import Column, ColumnKind, Ragged, Samples, Schema, multi_hot, offsets_of, stored_as
from xdpx.tokenizers.vocabulary import Vocabulary

SPECIAL = re.compile(r"[\W_].*[\W_]")
"""Tokens such as `[CLS]`, `<s>` and `<|endoftext|>`, by what they begin and end with."""
Fields = Mapping[str, Sequence[int]]
"""Token ids of the texts of one record, by the names in `Processor.text_fields`."""

Batch = dict[str, Any]
"""Numpy arrays: `id` (B,), `net_input` {name: array} for the model, `target`, `query_id`; `ntokens` without padding."""


class Processor(ABC):
    """Converts encoded fields to samples, and samples to batches with masks that exclude padding from all results."""

    class Parameters(BaseParameters):
        """Keys of all processors. Those that are None come from the vocabulary or from `meta.hjson`."""

        max_len: int = param(doc="Maximum length of a sample in tokens, with special ones; longer ones are cut.", ge=1)
        min_len: int = param(1, doc="Minimum width that a batch is padded to, in tokens.", ge=1)
        pad_word: str = param("[PAD]", doc="Padding token; models never attend to it.")
        unk_word: str = param("[UNK]", doc="Token for words that are not in the vocabulary.")
        pad_index: int | None = param(None, doc="Id of `pad_word`; from the vocabulary.", ge=0)
        vocab_size: int | None = param(None, doc="Number of tokens; from the vocabulary.", ge=1)
        num_classes: int | None = param(None, doc="Number of labels; from the target map.", ge=1)
        target_unk: str | None = param(None, doc="Label to use for labels that are not in the target map.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Return conflicts: min_len above max_len, and equal words for padding and unknown."""
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
    """Tokens that a vocabulary must have besides those for padding and unknown words."""
    num_special: ClassVar[int] = 0
    """Number of special tokens per sample, which count towards `max_len`."""
    learns_labels: ClassVar[bool] = False
    """Whether labels are learnt from the samples, so that training data without labels are a mistake."""
    reads_answers: ClassVar[bool] = False
    """Whether `numerize_many` also gets the fields of `xdpx.datasets.answer_places`, from a loader with answers."""
    reads_marks: ClassVar[int] = 0
    """Marks of `xdpx.loaders.marks` that are set on the ids passed to `numerize`, if the loader knows them."""

    def __init__(self, parameters: Parameters, *, vocabulary: Vocabulary | None = None) -> None:
        self.parameters: Any = parameters
        self.vocabulary = vocabulary
        if parameters.max_len <= self.num_special:
            problem = f"is {parameters.max_len}, but {self.num_special} of these tokens are special ones."
            raise refusal("max_len", problem, f"Use at least {self.num_special + 1}.")
        self.pad_index = self._token_index("pad_index", parameters.pad_index, parameters.pad_word)

    def columns(self, *, labelled: bool) -> dict[str, str]:
        """Return the schema of the samples: the columns of this processor, `length`, and `target` if labelled."""
        target = {"target": "int64"} if labelled else {}
        return {**self.schema, "length": "int32", **target}

    @abstractmethod
    def numerize(self, fields: Fields, target: int | None) -> dict[str, Any] | None:
        """Return a sample with the values of `columns`, or None to drop the record. Runs once, in preprocessing."""

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[Mapping[str, Column], NDArray[np.int64]]:
        """Return (columns of the samples of many records, index of the record of each sample)."""
        samples: list[dict[str, Any]] = []
        kept: list[int] = []
        for index in range(len(next(iter(fields.values())))):
            record = {name: rows.row(index).tolist() for name, rows in fields.items()}
            sample = self.numerize(record, None if targets is None else int(targets[index]))
            if sample is not None:
                samples.append(sample)
                kept.append(index)
        wanted = self.columns(labelled=targets is not None)
        try:
            return Samples.from_dicts(samples, wanted).columns, np.array(kept, np.int64)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise _unfit_to_store(self, "numerize", wanted, error) from error

    def with_label_sets(self, samples: Samples, sets: Ragged) -> Samples:
        """Return samples with `target`, an index into `sets`, replaced by that row of classes.

        Override it if windows of one record share its row. Samples without a target, as for masked tokens, stay.
        """
        if "target" not in samples.columns:
            return samples
        return samples.replaced("target", sets.take(samples.numbers("target")))

    @abstractmethod
    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch: samples padded to the longest of them, with the noise of this epoch.

        Args:
            samples: of the batch, as returned by `take` of a store.
            epoch: from 1 in training; 0 in evaluation, so that the noise is always the same.
            seed: of the run.
            training: whether the batch is for training.
            pad_multiple: widths are rounded up to a multiple of this; 8 makes mixed precision fast.
        """

    def split(self, batch: Mapping[str, Any], parts: int) -> list[Batch]:
        """Return a batch split into at most `parts` smaller ones, in order.

        Widths are unchanged. There are fewer parts if there are fewer samples.
        """
        rows = len(batch["id"])
        edges = [rows * part // parts for part in range(parts + 1)]
        return [self._rows(batch, start, stop) for start, stop in pairwise(edges) if start < stop]

    def _rows(self, batch: Mapping[str, Any], start: int, stop: int) -> Batch:
        """Return the samples in [start, stop) as a batch. Override it if an array does not have one row per sample."""
        cut = {name: value[start:stop] for name, value in batch.items() if isinstance(value, np.ndarray)}
        net_input = {name: value[start:stop] for name, value in batch["net_input"].items()}
        return {**batch, **cut, "net_input": net_input, "ntokens": self._num_tokens(net_input)}

    def _num_tokens(self, net_input: Mapping[str, Any]) -> int:
        """Return the number of tokens without padding: of true values in all boolean inputs, which are the masks."""
        return sum(int(value.sum()) for value in net_input.values() if value.dtype == np.bool_)

    def full_length(self, fields: Fields) -> int:
        """Return the length of an uncut record in tokens, with special ones; it is cut if this is above `max_len`."""
        return sum(len(fields[name]) for name in self.text_fields) + self.num_special

    def lacks_text(self, fields: Fields) -> bool:
        """Return whether there is nothing to read in one of the texts of a record."""
        return min(len(fields[name]) for name in self.text_fields) == 0

    def meta(self) -> dict[str, Any]:
        """Return what training inherits by meta.hjson: the parameters, with ids and sizes from the vocabulary."""
        known: dict[str, Any] = {key: value for key, value in self.parameters.model_dump().items() if value is not None}
        known["pad_index"] = self.pad_index
        if self.vocabulary is not None:
            known["vocab_size"] = len(self.vocabulary)
        return known

    def decode(self, sample: Mapping[str, Any]) -> str:
        """Return the text of a sample's tokens, for display."""
        rows = [sample[name] for name, kind in self.schema.items() if kind == "ragged int32"]
        return " | ".join(self._text(row) for row in rows)

    def _text(self, ids: Sequence[int]) -> str:
        if self.vocabulary is None:
            return " ".join(map(str, ids))
        return " ".join(self.vocabulary.tokens[index] for index in ids)

    def _never_empty(self, rows: Ragged) -> Ragged:
        """Return rows with one unknown token in place of empty texts, which would be masked completely."""
        lengths = rows.lengths
        if lengths.all():
            return rows
        offsets = offsets_of(np.maximum(lengths, 1))
        values = np.full(offsets[-1], self._token_index("unk_word", None, self.parameters.unk_word), np.int32)
        values[rows.places(offsets[:-1])] = rows.values
        return Ragged(values, offsets)

    def _token_index(self, parameter: str, index: int | None, token: str) -> int:
        """Return `index`, or if it is None the id of the token in the vocabulary. Raises ConfigError without both."""
        if index is not None:
            self._tell_of_plain_word(parameter, index, token)
            return index
        found = self.vocabulary.find(token) if self.vocabulary is not None else None
        if found is not None:
            return found
        where = "the vocabulary lacks it" if self.vocabulary is not None else "there is no vocabulary"
        remedy = "Add it to vocab.txt, or inherit the data's meta: `__parent__: ${data_dir}/meta`."
        raise refusal(parameter, f"the id of '{token}' is not known: {where}.", remedy)

    def _tell_of_plain_word(self, parameter: str, index: int, token: str) -> None:
        """Warn of an id for a special token that looks like a word, such as those of BERT in another vocabulary.

        Raises:
            ConfigError: the vocabulary has no such id.
        """
        tokens = self.vocabulary.tokens if self.vocabulary is not None else [token] * (index + 1)
        if index >= len(tokens):
            problem = f"is {index}, but the vocabulary has {len(tokens)} tokens."
            raise refusal(parameter, problem, "Use the line number in vocab.txt, from 0.")
        found = tokens[index]
        if found != token and not SPECIAL.fullmatch(found) and any(map(str.isalnum, found)):
            problem = f"is {index}, which is '{found}' in the vocabulary, and looks like a word"
            log.warning(f"{parameter}: {problem}. Give the id of the special token.", once=True)

    def _width(self, *lengths: NDArray[np.integer[Any]], pad_multiple: int) -> int:
        longest = max([int(each.max(initial=1)) for each in lengths])
        width: int = -(-max(longest, self.parameters.min_len) // pad_multiple) * pad_multiple
        return width

    def _tokens(self, rows: Ragged, pad_multiple: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return (padded ids, mask that is true except at padding), both of shape (B, T)."""
        lengths = rows.lengths
        width = self._width(lengths, pad_multiple=pad_multiple)
        mask = np.arange(width) < lengths[:, None]
        ids = np.full(mask.shape, self.pad_index, np.int64)
        ids[mask] = rows.values
        return ids, mask

    def _targets(self, samples: Samples) -> NDArray[Any]:
        """Return the classes of samples (B,); for several labels per row, a multi-hot array (B, C), float32."""
        column = samples.columns["target"]
        if not isinstance(column, Ragged):
            return column
        if self.parameters.num_classes is None:
            problem = "is missing, but samples with several labels need it."
            raise refusal("num_classes", problem, "Inherit the data's meta.hjson.")
        return multi_hot(column, self.parameters.num_classes)

    def _batch(self, samples: Samples, net_input: dict[str, Any], ntokens: int) -> Batch:
        batch: Batch = {"id": samples.ids, "net_input": net_input, "ntokens": ntokens}
        if "target" in samples:
            batch["target"] = self._targets(samples)
        if "query_id" in samples:
            batch["query_id"] = samples.numbers("query_id")
        return batch


def samples_of(
    processor: Processor, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None, schema: Schema
) -> tuple[Samples, NDArray[np.int64]]:
    """Return (samples of many records in the types of a schema, index of the record of each).

    Raises:
        ConfigError: a user's `numerize_many` returns other columns, or numbers that these types cannot hold.
    """
    columns, kept = processor.numerize_many(fields, targets)
    try:
        stored = {name: stored_as(columns[name], ColumnKind.parse(kind)) for name, kind in schema.items()}
        samples = Samples(stored)
        if len(kept) != len(samples):
            raise ValueError(f"it has records for {len(kept)} samples, but there are {len(samples)}")
    except (LookupError, TypeError, ValueError) as error:
        raise _unfit_to_store(processor, "numerize_many", schema, error) from error
    return samples, kept


def _unfit_to_store(processor: Processor, method: str, wanted: Schema, error: Exception) -> ConfigError:
    found = f"values that cannot be stored ({type(error).__name__}: {error})"
    listed = ", ".join(f"{column} ({kind})" for column, kind in wanted.items())
    return wrong_return("processor", processor, method, found, f"Return a dict with {listed}.")


def collated(processor: Processor, samples: Samples, **options: Any) -> Batch:
    """Return the batch that a processor makes of samples; `options` are those of `Processor.collate`.

    Raises:
        ConfigError: a user's `collate` returns something else than a batch of these samples.
    """
    training = bool(options.get("training"))
    copied = deepcopy(samples) if _is_to_try(processor, training=training) else None
    batch: Any = processor.collate(samples, **options)
    if not isinstance(batch, dict):
        found = type(batch).__name__
    elif not isinstance(batch.get("net_input"), Mapping) or "id" not in batch:
        found = f"a batch with {', '.join(map(str, batch)) or 'nothing'}"
    elif len(batch["id"]) != len(samples):
        found = f"the ids of {len(batch['id'])} samples for {len(samples)}"
    else:
        if copied is not None:
            _warn_of_another(batch, processor, copied, options, training=training)
        return batch
    remedy = "Return self._batch(samples, net_input, ntokens); net_input is a dict of the arrays that the model takes."
    raise wrong_return("processor", processor, "collate", found, remedy)


_tried: set[tuple[type[Processor], bool]] = set()


def _is_to_try(processor: Processor, *, training: bool) -> bool:
    """Return True once in a process for a user's class in training, and once in evaluation."""
    kind = type(processor)
    if are_shipped(processor) or (kind, training) in _tried:
        return False
    _tried.add((kind, training))
    return True


def _warn_of_another(
    batch: Batch, processor: Processor, samples: Samples, options: Mapping[str, Any], *, training: bool
) -> None:
    """Warn if `collate` makes another batch, or none, when it is called again with a copy of the same samples."""
    with suppress(Exception):
        if _same(batch, processor.collate(samples, **options)):
            return
    effect = "a resumed or repeated run sees other batches" if training else "scores and predictions depend on chance"
    log.warning(
        f"processor: {type(processor).__name__}.collate makes another batch of the same samples when it is called "
        f"again: {effect}. Draw random numbers from (seed, epoch, sample id), by xdpx.processors.randomness"
        f"{'' if training else ', and only if training is true'}; and keep no state."
    )


def _same(first: Any, second: Any) -> bool:
    """Return whether two values of a batch are equal; True for those that cannot be compared."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_same(first[name], second[name]) for name in first)
    try:
        one, other = np.asarray(first), np.asarray(second)
    except ValueError:  # lists of different lengths
        return len(first) == len(second) and all(map(_same, first, second))
    except (TypeError, RuntimeError):  # such as sparse tensors
        return True
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


class ColumnProcessor(Processor):
    """Base of processors that convert many records at once, column by column; all shipped ones derive from it."""

    @abstractmethod
    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[Mapping[str, Column], NDArray[np.int64]]:
        """Return (columns of the samples of many records, index of the record of each sample)."""

    def numerize(self, fields: Fields, target: int | None) -> dict[str, Any] | None:
        """Return one sample, of a record with several windows the first; None to drop the record."""
        rows = {name: Ragged(np.array(ids, np.int32), np.array([0, len(ids)])) for name, ids in fields.items()}
        columns, kept = self.numerize_many(rows, None if target is None else np.array([target]))
        return Samples(columns).sample(0) if len(kept) else None


def with_targets(
    columns: dict[str, Column], targets: NDArray[np.int64] | None
) -> tuple[dict[str, Column], NDArray[np.int64]]:
    """Return (columns that contain all records, with the targets added if there are any, indices of all records)."""
    if targets is not None:
        columns["target"] = targets
    return columns, np.arange(len(columns["length"]))


def framed(frame: Sequence[int], rows: Sequence[Ragged], *, before: int) -> Ragged:
    """Return the rows of several columns concatenated, with special tokens before and after them.

    Args:
        frame: the special tokens: the first `before` of them in front, then one after each column's row.
        rows: columns with the same number of rows.
        before: number of special tokens in front.

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
