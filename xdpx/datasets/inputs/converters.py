"""Token rows of a task -> the arrays a model reads, for unpacked and packed rows alike, without a step per example.

Shape letters: N examples, B rows of the batch, T tokens of a row.

Source: values agree with those of Pax's converters over SeqIO (`tests/datasets/inputs/goldens_seqio.json`).
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
    """Lays the features of examples out in the arrays of a batch."""

    class HParams(BaseHParams):
        """What every converter can be told.

        Attributes:
            pack: put several examples into one row, by first fit.
        """

        pack: bool = False

    @property
    @abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """The features it reads, in the order in which rows lay them."""

    @abstractmethod
    def limits(self, lengths: Mapping[str, int]) -> tuple[int, ...]:
        """Return the tokens of a row, one number per array side by side, from the tokens that each feature may have."""

    @abstractmethod
    def row_lengths(self, lengths: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the tokens that each example takes of a row, shape (N, number of limits)."""

    @abstractmethod
    def convert(self, features: Features, where: Packed, limits: tuple[int, ...]) -> NestedMap:
        """Make the arrays of `where.num_rows` rows."""

    def pack(self, lengths: Mapping[str, NDArray[np.int64]], limits: tuple[int, ...]) -> Packed:
        """Decide which example goes into which row."""
        return first_fit(self.row_lengths(lengths), np.array(limits))

    def spec(self, batch_size: int, limits: tuple[int, ...]) -> NestedMap:
        """Return the ArraySpec of every array, without any data."""
        nothing = {name: Ragged(np.zeros(0, np.int32), np.zeros(1, np.int64)) for name in self.feature_names}
        columns = len(limits)
        empty = Packed(np.zeros(0, np.int64), np.zeros((0, columns), np.int64), np.zeros(0, np.int64), batch_size)
        return self.convert(nothing, empty, limits).Transform(lambda array: ArraySpec(array.shape, array.dtype))


class LanguageModelFeatures(FeatureConverter):
    """Inputs, then targets, as one sequence; each token is predicted from those before it in its example."""

    class HParams(FeatureConverter.HParams):
        """What the converter for language models can be told.

        Attributes:
            weights_on_targets_only: leave the prompt (`inputs`) out of the loss.
            reverse_bos_padding: do not begin with `bos_id`: the first token is given, the last column is `eos_id`.
            bos_id: what stands before the first token.
            eos_id: what stands in the last column of the labels with `reverse_bos_padding`.
            with_inputs: whether there is a prompt; False where a task has targets alone.
        """

        weights_on_targets_only: bool = False
        reverse_bos_padding: bool = False
        bos_id: int = 0
        eos_id: int = 1
        with_inputs: bool = True

    @property
    def feature_names(self) -> tuple[str, ...]:
        """`inputs` and `targets`, or `targets` alone."""
        return ("inputs", "targets") if self.hparams.with_inputs else ("targets",)

    def limits(self, lengths: Mapping[str, int]) -> tuple[int, ...]:
        """Room for both features behind one another."""
        return (sum(lengths[name] for name in self.feature_names),)

    def row_lengths(self, lengths: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the tokens of both features together, shape (N, 1)."""
        total: NDArray[np.int64] = np.sum([lengths[name] for name in self.feature_names], axis=0)
        return total[:, None]

    def convert(self, features: Features, where: Packed, limits: tuple[int, ...]) -> NestedMap:
        """Make ids, labels, weights, paddings, segment_ids, segment_pos and inputs_indicator, each (B, T)."""
        p = self.hparams
        targets = features["targets"]
        prompts = features["inputs"].lengths if p.with_inputs else np.zeros(len(targets), np.int64)
        tokens = joined([features["inputs"], targets]) if p.with_inputs else targets
        layout = _Layout(tokens, where, limits[0])
        batch = layout.sequence(tokens.values, bos_id=p.bos_id, alone=not p.pack)
        in_loss = layout.inner >= prompts[layout.example] if p.weights_on_targets_only else None
        batch["weights"] = layout.lay(in_loss, np.float32)
        in_prompt = layout.inner <= prompts[layout.example] if p.with_inputs else np.zeros(len(tokens.values))
        batch["inputs_indicator"] = layout.lay(in_prompt, np.int32)
        return _reversed(batch, layout, p.eos_id) if p.reverse_bos_padding else batch


class PrefixLMFeatures(LanguageModelFeatures):
    """Like `LanguageModelFeatures`, with loss on targets alone: the prompt may be attended to from both sides.

    `inputs_indicator` marks the positions that see the whole prompt.
    """

    class HParams(LanguageModelFeatures.HParams):
        """What the converter for prefix language models can be told."""

        weights_on_targets_only: bool = True


class SequenceModelFeatures(FeatureConverter):
    """Inputs for the encoder under `src`, targets for the decoder under `tgt`."""

    class HParams(FeatureConverter.HParams):
        """What the converter for sequence models can be told.

        Attributes:
            bos_id: what stands before the first target.
        """

        bos_id: int = 0

    @property
    def feature_names(self) -> tuple[str, ...]:
        """`inputs` and `targets`."""
        return ("inputs", "targets")

    def limits(self, lengths: Mapping[str, int]) -> tuple[int, ...]:
        """Room for each of both features."""
        return (lengths["inputs"], lengths["targets"])

    def row_lengths(self, lengths: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the tokens of each feature, shape (N, 2)."""
        return np.stack([lengths["inputs"], lengths["targets"]], axis=1)

    def convert(self, features: Features, where: Packed, limits: tuple[int, ...]) -> NestedMap:
        """Make src: ids, paddings, segment_ids, segment_pos (B, T) and tgt: the same, labels and weights."""
        inputs, targets = features["inputs"], features["targets"]
        source = _Layout(inputs, where, limits[0], column=0)
        target = _Layout(targets, where, limits[1], column=1)
        src = source.sequence(inputs.values, bos_id=0, alone=True)
        src["ids"] = src.pop("labels")
        tgt = target.sequence(targets.values, bos_id=self.hparams.bos_id, alone=not self.hparams.pack)
        tgt["weights"] = target.lay(None, np.float32)
        return NestedMap(src=src, tgt=tgt)


class _Layout:
    """Where each token of some examples stands in rows of T tokens.

    Attributes:
        example: example of each token, shape (V,).
        inner: place of each token in its example, from 0, shape (V,).
        flat: place of each token in the flattened rows, shape (V,).
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
        """Lay one number per token out in rows of zeros, shape (B, T); None stands for ones."""
        return self._at(self.flat, 1 if values is None else values, dtype)

    def _at(self, places: NDArray[np.int64], values: NDArray[Any] | int, dtype: DTypeLike) -> NDArray[Any]:
        rows = np.zeros(self.shape, dtype)
        rows.reshape(-1)[places] = values
        return rows

    def sequence(self, values: NDArray[Any], *, bos_id: int, alone: bool) -> NestedMap:
        """Return ids (one later than labels, within each example), labels, paddings and segments.

        An example that has its row alone keeps its last token in the ids too, behind the others, as Pax does.
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
        """Move what stands at each token to the token before it in the same example; the last one gets 0."""
        moved = np.zeros_like(rows)
        kept = self.flat[self.inner > 0]
        moved.reshape(-1)[kept - 1] = rows.reshape(-1)[kept]
        return moved


def _reversed(batch: NestedMap, layout: _Layout, eos_id: int) -> NestedMap:
    """Let each token stand for itself and be followed by its label; nothing predicts the first one."""
    batch["ids"] = batch.labels
    batch["labels"] = layout.earlier(batch.labels)
    batch.labels[:, -1] = eos_id
    batch["weights"] = layout.earlier(batch.weights)
    batch["paddings"] = 1 - layout.earlier(1 - batch.paddings)
    return batch
