"""Feature converters: from token rows of a task to the arrays of a model, packed or not, fully vectorised.

Shape letters: N examples, B rows of the batch, T tokens of a row.

Source: values equal those of Pax's converters over SeqIO (`tests/datasets/inputs/goldens_seqio.json`), except for
`inputs_indicator` with `reverse_bos_padding`, which in Pax marks the first target, too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xdpx.config.hparams import BaseHParams, Configurable
from xdpx.datasets.inputs.base_input import ArraySpec
from xdpx.datasets.inputs.packing import Packed, first_fit
from xdpx.processors.samples import Ragged, joined
from xdpx.utils.nested_map import NestedMap

Features = Mapping[str, Ragged]
"""Feature name -> the token ids of each example."""


class FeatureConverter(Configurable):
    """Arranges the features of examples in the arrays of a batch."""

    class HParams(BaseHParams):
        """Fields of every converter.

        Attributes:
            pack: put several examples into one row, by first fit.
        """

        pack: bool = False

    @property
    @abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """The features that it reads, in their order in a row."""

    @abstractmethod
    def limits(self, lengths: Mapping[str, int]) -> tuple[int, ...]:
        """Return the widths of a row in tokens, one per separate array, from the maximum length of each feature."""

    @abstractmethod
    def row_lengths(self, lengths: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the number of tokens that each example takes in a row, shape (N, number of limits)."""

    @abstractmethod
    def convert(self, features: Features, where: Packed, limits: tuple[int, ...]) -> NestedMap:
        """Return the arrays of `where.num_rows` rows."""

    def pack(self, lengths: Mapping[str, NDArray[np.int64]], limits: tuple[int, ...]) -> Packed:
        """Return the assignment of examples to rows."""
        return first_fit(self.row_lengths(lengths), np.array(limits))

    def spec(self, batch_size: int, limits: tuple[int, ...]) -> NestedMap:
        """Return the ArraySpec of every array, without any data."""
        nothing = {name: Ragged(np.zeros(0, np.int32), np.zeros(1, np.int64)) for name in self.feature_names}
        columns = len(limits)
        empty = Packed(np.zeros(0, np.int64), np.zeros((0, columns), np.int64), np.zeros(0, np.int64), batch_size)
        return self.convert(nothing, empty, limits).Transform(lambda array: ArraySpec(array.shape, array.dtype))


class LanguageModelFeatures(FeatureConverter):
    """Inputs followed by targets as one sequence; each token is predicted from those before it in its example."""

    class HParams(FeatureConverter.HParams):
        """Fields of the converter for language models.

        Attributes:
            weights_on_targets_only: exclude the prompt (`inputs`) from the loss.
            reverse_bos_padding: start with the first token instead of `bos_id`; the last column of labels is `eos_id`.
            bos_id: id before the first token.
            eos_id: id in the last column of the labels with `reverse_bos_padding`.
            with_inputs: whether there is a prompt; False for tasks with only targets.
        """

        weights_on_targets_only: bool = False
        reverse_bos_padding: bool = False
        bos_id: int = 0
        eos_id: int = 1
        with_inputs: bool = True

    @property
    def feature_names(self) -> tuple[str, ...]:
        """`inputs` and `targets`, or only `targets`."""
        return ("inputs", "targets") if self.hparams.with_inputs else ("targets",)

    def limits(self, lengths: Mapping[str, int]) -> tuple[int, ...]:
        """Return the sum of the lengths of both features."""
        return (sum(lengths[name] for name in self.feature_names),)

    def row_lengths(self, lengths: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the tokens of both features together, shape (N, 1)."""
        total: NDArray[np.int64] = np.sum([lengths[name] for name in self.feature_names], axis=0)
        return total[:, None]

    def convert(self, features: Features, where: Packed, limits: tuple[int, ...]) -> NestedMap:
        """Return ids, labels, weights, paddings, segment_ids, segment_pos and inputs_indicator, each (B, T)."""
        p = self.hparams
        targets = features["targets"]
        prompts = features["inputs"].lengths if p.with_inputs else np.zeros(len(targets), np.int64)
        tokens = joined([features["inputs"], targets]) if p.with_inputs else targets
        layout = _Layout(tokens, where, limits[0])
        batch = layout.sequence(tokens.values, bos_id=p.bos_id, alone=not p.pack)
        in_loss = layout.inner >= prompts[layout.example] if p.weights_on_targets_only else None
        batch["weights"] = layout.lay(in_loss, np.float32)
        # The prompt is behind `bos_id`, if there is one. With reverse_bos_padding there is none: Pax marks as many
        # positions all the same, the last of which has the first target, the answer.
        num_in_prompt = prompts[layout.example] + (0 if p.reverse_bos_padding else 1)
        in_prompt = layout.inner < num_in_prompt if p.with_inputs else np.zeros(len(tokens.values))
        batch["inputs_indicator"] = layout.lay(in_prompt, np.int32)
        return _reversed(batch, layout, p.eos_id) if p.reverse_bos_padding else batch


class PrefixLMFeatures(LanguageModelFeatures):
    """Like `LanguageModelFeatures`, with loss only on targets, for models with bidirectional attention in the prompt.

    `inputs_indicator` marks the positions that see the whole prompt: those with `bos_id` and the prompt in `ids`.
    """

    class HParams(LanguageModelFeatures.HParams):
        """Fields of the converter for prefix language models."""

        weights_on_targets_only: bool = True


class SequenceModelFeatures(FeatureConverter):
    """Inputs for the encoder under `src`, targets for the decoder under `tgt`."""

    class HParams(FeatureConverter.HParams):
        """Fields of the converter for sequence models.

        Attributes:
            bos_id: id before the first target.
        """

        bos_id: int = 0

    @property
    def feature_names(self) -> tuple[str, ...]:
        """`inputs` and `targets`."""
        return ("inputs", "targets")

    def limits(self, lengths: Mapping[str, int]) -> tuple[int, ...]:
        """Return the length of each feature."""
        return (lengths["inputs"], lengths["targets"])

    def row_lengths(self, lengths: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the tokens of each feature, shape (N, 2)."""
        return np.stack([lengths["inputs"], lengths["targets"]], axis=1)

    def convert(self, features: Features, where: Packed, limits: tuple[int, ...]) -> NestedMap:
        """Return src: ids, paddings, segment_ids, segment_pos (B, T), and tgt: the same, labels and weights."""
        inputs, targets = features["inputs"], features["targets"]
        source = _Layout(inputs, where, limits[0], column=0)
        target = _Layout(targets, where, limits[1], column=1)
        src = source.sequence(inputs.values, bos_id=0, alone=True)
        src["ids"] = src.pop("labels")
        tgt = target.sequence(targets.values, bos_id=self.hparams.bos_id, alone=not self.hparams.pack)
        tgt["weights"] = target.lay(None, np.float32)
        return NestedMap(src=src, tgt=tgt)


class _Layout:
    """The positions of the tokens of some examples in rows of T tokens.

    Attributes:
        example: index of the example of each token, shape (V,).
        inner: position of each token in its example, from 0, shape (V,).
        flat: position of each token in the flattened rows, shape (V,).
    """

    def __init__(self, tokens: Ragged, where: Packed, width: int, *, column: int = 0) -> None:
        lengths = tokens.lengths
        self.shape = (where.num_rows, width)
        self.example = np.repeat(np.arange(len(tokens)), lengths)
        self.inner = np.arange(len(tokens.values)) - np.repeat(tokens.offsets[:-1], lengths)
        self.flat = np.repeat(where.rows * width + where.starts[:, column], lengths) + self.inner
        self._segments = np.repeat(where.segments, lengths)
        self._is_last = self.inner == lengths[self.example] - 1

    def lay(self, values: NDArray[Any] | None, dtype: DTypeLike) -> NDArray[Any]:
        """Return rows (B, T) with one number per token, and zeros elsewhere; None means ones."""
        return self._at(self.flat, 1 if values is None else values, dtype)

    def _at(self, places: NDArray[np.int64], values: NDArray[Any] | int, dtype: DTypeLike) -> NDArray[Any]:
        rows = np.zeros(self.shape, dtype)
        rows.reshape(-1)[places] = values
        return rows

    def sequence(self, values: NDArray[Any], *, bos_id: int, alone: bool) -> NestedMap:
        """Return ids (labels shifted by one within each example), labels, paddings and segments.

        In a row with a single example (`alone`), the ids also contain its last token, after the others, as in Pax.
        """
        kept = self.flat % self.shape[1] < self.shape[1] - 1 if alone else ~self._is_last
        shifted = self._at(self.flat[kept] + 1, values[kept], np.int32)
        if bos_id:
            shifted.reshape(-1)[self.flat[self.inner == 0]] = bos_id
        return NestedMap(
            ids=shifted,
            labels=self.lay(values, np.int32),
            paddings=1 - self.lay(None, np.float32),
            segment_ids=self.lay(self._segments, np.int32),
            segment_pos=self.lay(self.inner, np.int32),
        )

    def earlier(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return rows with the value of each token moved to the token before it in its example; the last one gets 0."""
        moved = np.zeros_like(rows)
        kept = self.flat[self.inner > 0]
        moved.reshape(-1)[kept - 1] = rows.reshape(-1)[kept]
        return moved


def _reversed(batch: NestedMap, layout: _Layout, eos_id: int) -> NestedMap:
    """Return the batch with `reverse_bos_padding`: ids are the tokens themselves, labels the next ones."""
    batch["ids"] = batch.labels
    batch["labels"] = layout.earlier(batch.labels)
    batch.labels[:, -1] = eos_id
    batch["weights"] = layout.earlier(batch.weights)
    batch["paddings"] = 1 - layout.earlier(1 - batch.paddings)
    return batch
