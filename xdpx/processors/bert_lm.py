"""Processors for masked language modelling, with other tokens masked in every epoch.

ELECTRA adds the random numbers by which a generator fills the masks, bert_supervised a weak label of a pair (clicks,
replies).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import ConfigError, Fault, refusal
from xdpx.config.parameters import param
from xdpx.loaders import marks
from xdpx.logger import log
from xdpx.processors.base import Batch, Processor, with_targets
from xdpx.processors.bert import BertProcessor, balanced_cut
from xdpx.processors.masking import Masking, cumulative_weights
from xdpx.processors.randomness import bits, key, units
from xdpx.processors.samples import Column, Integers, Ragged, Samples, joined
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import io


class BertLMProcessor(BertProcessor):
    """Samples {input_ids}, no special tokens; batches {input_ids, attention_mask, masked_positions} and target (M,)."""

    class Parameters(BertProcessor.Parameters):
        """Keys of `bert_lm`."""

        mask_prob: float = param(
            0.15, doc="Share of the words, or tokens, that are to be predicted.", gt=0, le=1, alters="score"
        )
        leave_unmasked_prob: float = param(
            0.1, doc="Share of these that are left unchanged.", ge=0, le=1, alters="score"
        )
        random_token_prob: float = param(
            0.1, doc="Share of these that are replaced by a random token.", ge=0, le=1, alters="score"
        )
        max_predictions: int | float = param(
            0.33,
            doc="Maximum tokens to predict per sample: a number (int) or a share of its length (float).",
            gt=0,
            alters="score",
        )
        mask_whole_words: bool = param(
            True, doc="Mask all pieces of a word or none: words of corpus_mix, else '##' pieces.", alters="score"
        )
        mask_index: int | None = param(None, doc="Id of [MASK]; from the vocabulary.", ge=0)
        freq_weighted_replacement: str | None = param(
            None,
            doc="File of `token<TAB>count` lines; random tokens are drawn by frequency.",
            path="file",
            alters="score",
        )
        token_default_count: int | None = param(
            None,
            doc="Count of tokens that are not in the file.",
            ge=0,
            when=("freq_weighted_replacement", "is not", None),
        )
        vocab_sample_alpha: float = param(
            0.5,
            doc="Random tokens are drawn in proportion to count ** alpha.",
            ge=0,
            when=("freq_weighted_replacement", "is not", None),
        )

        def conflicts(self) -> list[tuple[str, str]]:
            """Return conflicts: shares above one, and a file of counts without a count for other tokens."""
            found = super().conflicts()
            shares = self.leave_unmasked_prob + self.random_token_prob
            if shares > 1:
                found.append(
                    ("random_token_prob", f"and leave_unmasked_prob add up to {shares:g}. Use at most 1 together.")
                )
            if isinstance(self.max_predictions, float) and self.max_predictions > 1:
                found.append(
                    ("max_predictions", f"is {self.max_predictions}. Use a whole number, or a share of at most 1.0.")
                )
            if self.freq_weighted_replacement is not None and self.token_default_count is None:
                found.append(("token_default_count", "is missing. Set the count of tokens that the file lacks."))
            return found

    special_words: ClassVar[tuple[str, ...]] = ("[CLS]", "[SEP]", "[MASK]")
    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32"}
    num_special: ClassVar[int] = 2
    reads_marks: ClassVar[int] = marks.WORD_START

    def __init__(self, parameters: Parameters, *, vocabulary: Vocabulary | None = None) -> None:
        super().__init__(parameters, vocabulary=vocabulary)
        self.mask_index = self._token_index("mask_index", parameters.mask_index, "[MASK]")
        self._masking: Masking | None = None

    def meta(self) -> dict[str, Any]:
        """Return what training inherits, including the id of the mask token."""
        return {**super().meta(), "mask_index": self.mask_index}

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples of blocks that are cut to fit with [CLS] and [SEP], without those shorter than `min_len`."""
        tokens, kept = fields["tokens"].cut(self._room).not_shorter_than(self.parameters.min_len)
        return {"input_ids": tokens, "length": tokens.lengths + self.num_special}, kept

    def columns(self, *, labelled: bool) -> dict[str, str]:
        """Return the schema without labels: the tokens themselves are to be predicted."""
        return super().columns(labelled=False)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch of masked and padded rows, with [CLS] and [SEP].

        `masked_positions` (M,) are ascending flat indices into (B * T,), `target` (M,) the original tokens there.
        """
        tokens = samples.ragged("input_ids")
        return self._masked(tokens, samples.ids, epoch=epoch, seed=seed, pad_multiple=pad_multiple)

    def _masked(
        self, tokens: Ragged, ids: Integers, *, first: Integers | None = None, epoch: int, seed: int, pad_multiple: int
    ) -> Batch:
        """Return the batch of rows of tokens; `first` (B,) is the length of the first text in rows of two texts."""
        chosen, corrupted = self._corrupt(tokens, ids, first=first, seed=seed, epoch=epoch)
        lengths = tokens.lengths
        last = lengths + (1 if first is None else 2)
        width = self._width(last + 1, pad_multiple=pad_multiple)
        columns = np.arange(width)
        inside = (columns > 0) & (columns < last[:, None])
        rows = np.arange(len(lengths))
        if first is not None:
            inside[rows, first + 1] = False
        mask = columns <= last[:, None]
        input_ids = np.where(mask, self.sep_index, self.pad_index)
        input_ids[inside] = corrupted
        input_ids[:, 0] = self.cls_index
        net_input: dict[str, Any] = {
            "input_ids": input_ids,
            "attention_mask": mask,
            "masked_positions": np.flatnonzero(inside)[chosen],
        }
        if first is not None:
            net_input["token_type_ids"] = (mask & (columns > first[:, None] + 1)).astype(np.int64)
        target = marks.plain(tokens.values[chosen]).astype(np.int64)
        return {"id": ids, "net_input": net_input, "target": target, "ntokens": int(mask.sum())}

    def _corrupt(
        self, tokens: Ragged, ids: Integers, *, first: Integers | None, seed: int, epoch: int
    ) -> tuple[NDArray[np.bool_], Integers]:
        """Return (which tokens are to be predicted, the tokens after corruption), both of shape (V,)."""
        del first
        plain = Ragged(marks.plain(tokens.values), tokens.offsets)
        starts = self._word_starts(tokens.values, plain.values)
        return self.masking.corrupt(plain, ids=ids, word_starts=starts, seed=seed, epoch=epoch)

    def decode(self, sample: Mapping[str, Any]) -> str:
        """Return the text of a sample's tokens, for display."""
        rows = {name: sample[name] for name, kind in self.schema.items() if kind == "ragged int32"}
        return super().decode({**sample, **{name: marks.plain(np.array(row, np.int64)) for name, row in rows.items()}})

    def _rows(self, batch: Mapping[str, Any], start: int, stop: int) -> Batch:
        """Return the samples in [start, stop); masked positions become relative to the first of them."""
        places, width = batch["net_input"]["masked_positions"], batch["net_input"]["input_ids"][0].size
        first, last = np.searchsorted(places, [start * width, stop * width])
        found = super()._rows(batch, start, stop)
        found["net_input"]["masked_positions"] = places[first:last] - start * width
        found["target"] = batch["target"][first:last]
        return found

    @property
    def masking(self) -> Masking:
        """The rules of corruption, created on first use, because preprocessing does not need them."""
        if self._masking is None:
            self._masking = self._make_masking()
        return self._masking

    def _make_masking(self) -> Masking:
        known = self.parameters
        size = len(self.vocabulary) if self.vocabulary is not None else known.vocab_size
        if size is None:
            problem = "is not known: there is neither a vocabulary nor a meta.hjson."
            raise refusal("vocab_size", problem, "Inherit it: `__parent__: ${data_dir}/meta`.")
        special = {self.pad_index, self.cls_index, self.sep_index, self.mask_index}
        unknown = self.vocabulary.find(known.unk_word) if self.vocabulary is not None else None
        if unknown is not None:
            special.add(unknown)
        candidates = np.setdiff1d(np.arange(size), list(special))
        if not len(candidates):
            problem = f"is {size}: there are only special tokens, and none to replace others with."
            raise refusal("vocab_size", problem, "Use a vocabulary with words in it.")
        return Masking(
            mask_prob=known.mask_prob,
            leave_unmasked_prob=known.leave_unmasked_prob,
            random_token_prob=known.random_token_prob,
            max_predictions=known.max_predictions,
            mask_index=self.mask_index,
            candidates=candidates,
            cumulative=self._cumulative(candidates),
        )

    def _cumulative(self, candidates: NDArray[np.int64]) -> NDArray[np.float64] | None:
        path = self.parameters.freq_weighted_replacement
        if path is None:
            return None
        with io.open(path) as lines:
            counts = read_counts(lines, path)
        tokens = self._needed("freq_weighted_replacement").tokens
        default = self.parameters.token_default_count
        weights = np.array([counts.get(tokens[index], default) for index in candidates], np.float64)
        if not weights.any():
            raise ConfigError(
                path, [Fault("token_default_count", "and all counts are 0.", "Use at least 1 somewhere.")]
            )
        return cumulative_weights(weights, self.parameters.vocab_sample_alpha)

    def _word_starts(self, marked: Integers, tokens: Integers) -> NDArray[np.bool_] | None:
        """Return which tokens begin a word: those marked by the loader, else all but '##' pieces; None: all do."""
        if not self.parameters.mask_whole_words:
            return None
        begins = marks.has(marks.WORD_START, marked)
        if begins.any():
            return begins
        vocabulary = self._needed("mask_whole_words")
        if vocabulary.signs_spaces:
            problem = "is true, but in this vocabulary a sign for a space begins words, and no '##' continues them"
            log.warning(f"mask_whole_words: {problem}: tokens are masked one by one. Set it to false.", once=True)
        starts: NDArray[np.bool_] = ~vocabulary.continuation[tokens]
        return starts

    def _needed(self, key: str) -> Vocabulary:
        if self.vocabulary is None:
            problem = "needs the text of the tokens, but there is no vocabulary."
            raise refusal(key, problem, "Put vocab.txt beside the data, or turn it off.")
        return self.vocabulary


def read_counts(lines: Iterable[str], path: str) -> dict[str, int]:
    """Return token -> count from lines `token<TAB>count`. Raises ConfigError with the number of an invalid line."""
    counts = {}
    for number, line in enumerate(lines, 1):
        token, _, count = line.rstrip("\r\n").rpartition("\t")
        if not token or not count.isdecimal():
            fault = Fault(
                "freq_weighted_replacement", f"line {number} is {line.strip()!r}.", "Write `token<TAB>count`."
            )
            raise ConfigError(path, [fault])
        counts[token] = int(count)
    return counts


class BertSupervisedProcessor(BertLMProcessor):
    """[CLS] first [SEP] second [SEP], masked as by `bert_lm`; `cls_target` (B,) is the label in the data."""

    class Parameters(BertLMProcessor.Parameters):
        """Keys of `bert_supervised`."""

    text_fields: ClassVar[tuple[str, ...]] = ("tokens1", "tokens2")
    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32", "first_length": "int32"}
    num_special: ClassVar[int] = 3

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples of pairs, cut (the longer text first) to fit into `max_len` with three special tokens."""
        first, second = fields["tokens1"], fields["tokens2"]
        room = self.parameters.max_len - self.num_special
        kept_first, kept_second = balanced_cut(first.lengths, second.lengths, room)
        tokens = joined([first.cut(kept_first), second.cut(kept_second)])
        length = tokens.lengths + self.num_special
        return with_targets({"input_ids": tokens, "first_length": kept_first, "length": length}, targets)

    def columns(self, *, labelled: bool) -> dict[str, str]:
        """Return the schema, with the label."""
        return Processor.columns(self, labelled=labelled)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a masked and padded batch with `target` (M,) and, for labelled data, `cls_target` (B,)."""
        batch = self._masked(
            samples.ragged("input_ids"), samples.ids, first=samples.numbers("first_length"),
            epoch=epoch, seed=seed, pad_multiple=pad_multiple,
        )  # fmt: skip
        return {**batch, "cls_target": samples.numbers("target")} if "target" in samples else batch


NOISE = 5
"""Counter of the draw of a token that selects the generator's replacement. Other draws use 0 to 4."""


class ElectraProcessor(BertLMProcessor):
    """As `bert_lm`, with all chosen tokens masked by default; batches also have `noise` (M,), uniform in [0, 1).

    Source: Clark et al., "ELECTRA", ICLR 2020, section 2.
    """

    class Parameters(BertLMProcessor.Parameters):
        """Keys of `electra`."""

        leave_unmasked_prob: float = param(
            0.0, doc="Share of these that are left unchanged.", ge=0, le=1, alters="score"
        )
        random_token_prob: float = param(
            0.0, doc="Share of these that are replaced by a random token.", ge=0, le=1, alters="score"
        )

    schema: ClassVar[dict[str, str]] = BertLMProcessor.schema

    def _masked(
        self, tokens: Ragged, ids: Integers, *, first: Integers | None = None, epoch: int, seed: int, pad_multiple: int
    ) -> Batch:
        batch = super()._masked(tokens, ids, first=first, epoch=epoch, seed=seed, pad_multiple=pad_multiple)
        given = batch["net_input"]
        row, column = np.divmod(given["masked_positions"], given["input_ids"].shape[1])
        draws = bits(bits(key(seed, epoch), ids)[row], column)
        given["noise"] = units(bits(draws, NOISE)).astype(np.float32)
        return batch

    def _rows(self, batch: Mapping[str, Any], start: int, stop: int) -> Batch:
        """Return the samples in [start, stop), with the noise of their masks."""
        found = super()._rows(batch, start, stop)
        given = batch["net_input"]
        edges = np.array([start, stop]) * given["input_ids"].shape[1]
        found["net_input"]["noise"] = given["noise"][slice(*np.searchsorted(given["masked_positions"], edges))]
        return found
