"""What every processor does: turn numbered fields into a sample once, and samples into a padded batch at every step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.processors.samples import Ragged, Samples
from xdpx.tokenizers.vocabulary import Vocabulary

Fields = Mapping[str, Sequence[int]]
"""Encoded text fields of one record, by the names in `Processor.text_fields`."""

Batch = dict[str, Any]
"""Numpy arrays: `id` (B,), `net_input` {name: array} for the model, `target`; and `ntokens`, padding not counted."""


class Processor(ABC):
    """From numbered fields to a sample, from samples to a batch. Attention masks keep padding out of every result."""

    class Parameters(BaseParameters):
        """What all processors share. What is None comes from the vocabulary or from `meta.hjson`."""

        max_len: int = param(doc="Longest sample kept, in tokens with special ones; what is longer is cut.", ge=1)
        min_len: int = param(1, doc="Shortest width that a batch is padded to, in tokens.", ge=1)
        pad_word: str = param("[PAD]", doc="Token that fills short samples; models never attend to it.")
        unk_word: str = param("[UNK]", doc="Token for what the vocabulary lacks.")
        pad_index: int | None = param(None, doc="Id of `pad_word`; from the vocabulary.", ge=0)
        vocab_size: int | None = param(None, doc="Number of tokens; from the vocabulary.", ge=1)
        num_classes: int | None = param(None, doc="Number of labels; from the target map.", ge=1)
        target_unk: str | None = param(None, doc="Label to use for labels that the target map lacks.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse a least width beyond the greatest."""
            if self.min_len <= self.max_len:
                return []
            return [("min_len", f"is {self.min_len}, above max_len {self.max_len}. Use at most {self.max_len}.")]

    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[Mapping[str, str]] = {}
    num_special: ClassVar[int] = 0
    """How many tokens of `max_len` are taken by special ones."""

    def __init__(self, parameters: Parameters, *, vocabulary: Vocabulary | None = None) -> None:
        self.parameters: Any = parameters
        self.vocabulary = vocabulary
        if parameters.max_len <= self.num_special:
            problem = f"is {parameters.max_len}, but {self.num_special} of these tokens are special ones."
            raise ConfigError("processor", [Fault("max_len", problem, f"Use at least {self.num_special + 1}.")])
        self.pad_index = self._token_index("pad_index", parameters.pad_index, parameters.pad_word)

    def columns(self, *, labelled: bool) -> dict[str, str]:
        """Give the schema of the samples: this processor's own columns, `length`, and `target` if labelled."""
        target = {"target": "int64"} if labelled else {}
        return {**self.schema, "length": "int32", **target}

    @abstractmethod
    def numerize(self, fields: Fields, target: int | None) -> dict[str, Any] | None:
        """Make a sample with the values of `columns`, or None to drop the record. Runs once, in preprocessing."""

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

    def full_length(self, fields: Fields) -> int:
        """Length in tokens that a record would have if nothing were cut; too long when above `max_len`."""
        return sum(len(fields[name]) for name in self.text_fields) + self.num_special

    def meta(self) -> dict[str, Any]:
        """Give what training inherits: the declared parameters, with ids and sizes filled in from the vocabulary."""
        known: dict[str, Any] = {key: value for key, value in self.parameters.model_dump().items() if value is not None}
        known["pad_index"] = self.pad_index
        if self.vocabulary is not None:
            known["vocab_size"] = len(self.vocabulary)
        return known

    def decode(self, sample: Mapping[str, Any]) -> str:
        """Give the text of a sample's tokens, for people to look at."""
        rows = [sample[name] for name, kind in self.schema.items() if kind == "ragged int32"]
        return " | ".join(self._text(row) for row in rows)

    def _text(self, ids: Sequence[int]) -> str:
        if self.vocabulary is None:
            return " ".join(map(str, ids))
        return " ".join(self.vocabulary.tokens[index] for index in ids)

    def _unknown(self) -> list[int]:
        """Give the row that stands for a text without tokens: masked everywhere, it would have no features at all."""
        return [self._token_index("unk_word", None, self.parameters.unk_word)] if self.vocabulary else []

    def _token_index(self, parameter: str, index: int | None, token: str) -> int:
        """Give the id a config names, or else that of the token in the vocabulary."""
        if index is not None:
            return index
        found = self.vocabulary.find(token) if self.vocabulary is not None else None
        if found is not None:
            return found
        where = "the vocabulary lacks it" if self.vocabulary is not None else "there is no vocabulary"
        remedy = "Add it to vocab.txt, or inherit the data's meta: `__parent__: ${data_dir}/meta`."
        raise ConfigError("processor", [Fault(parameter, f"the id of '{token}' is not known: {where}.", remedy)])

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

    def _batch(self, samples: Samples, net_input: dict[str, Any], ntokens: int) -> Batch:
        batch: Batch = {"id": samples.ids, "net_input": net_input, "ntokens": ntokens}
        if "target" in samples:
            batch["target"] = samples.numbers("target")
        return batch


def labelled(sample: dict[str, Any], target: int | None) -> dict[str, Any]:
    """Put a target into a sample, where there is one."""
    if target is not None:
        sample["target"] = target
    return sample
