"""The processor for masked language modelling with a soft prompt: trained tokens before every text, never masked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import refusal
from xdpx.config.parameters import param
from xdpx.processors.base import Batch, Fields
from xdpx.processors.bert_lm import BertLMProcessor
from xdpx.processors.samples import Column, Ragged, Samples
from xdpx.tokenizers.vocabulary import Vocabulary


class BertCLSinglePromptProcessor(BertLMProcessor):
    """[CLS] [unused1] ... [unusedP] text [SEP], with tokens of the text masked. Samples and batches as of `bert_lm`.

    Source: Liu et al., "GPT Understands, Too", 2021, section 3: prompt tokens whose embeddings are trained.
    """

    class Parameters(BertLMProcessor.Parameters):
        """The length of the prompt."""

        prompt_length: int = param(20, ge=1, doc="P: number of [unusedN] tokens in front of each text.")

    schema: ClassVar[dict[str, str]] = BertLMProcessor.schema

    def __init__(self, parameters: Parameters, *, vocabulary: Vocabulary | None = None) -> None:
        super().__init__(parameters, vocabulary=vocabulary)
        words = [f"[unused{number}]" for number in range(1, parameters.prompt_length + 1)]
        self._prompt = [self._token_index("prompt_length", None, word) for word in words]
        self._room -= parameters.prompt_length
        if self._room < 1:
            problem = f"is {parameters.max_len}, which leaves no room for a text after the prompt."
            raise refusal("max_len", problem, "Raise it, or lower prompt_length.")

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples of blocks that are cut to fit after the prompt, which `collate` adds later."""
        columns, kept = super().numerize_many(fields, targets)
        return {**columns, "length": np.asarray(columns["length"]) + len(self._prompt)}, kept

    def full_length(self, fields: Fields) -> int:
        """Return the length of an uncut block in tokens, with the prompt and special ones."""
        return super().full_length(fields) + len(self._prompt)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a batch as of `bert_lm`, with the prompt inserted after [CLS] and `masked_positions` shifted."""
        batch = super().collate(samples, epoch=epoch, seed=seed, training=training)
        ids, mask = (batch["net_input"][name] for name in ("input_ids", "attention_mask"))
        rows, length = ids.shape
        width = self._width(np.array([length + len(self._prompt)]), pad_multiple=pad_multiple)
        behind = width - length - len(self._prompt)
        row, place = np.divmod(batch["net_input"]["masked_positions"], length)
        prompt = np.broadcast_to(np.array(self._prompt, ids.dtype), (rows, len(self._prompt)))
        padding = np.full((rows, behind), self.pad_index, ids.dtype)
        net_input = {
            "input_ids": np.concatenate([ids[:, :1], prompt, ids[:, 1:], padding], axis=1),
            "attention_mask": np.concatenate([prompt >= 0, mask, padding < 0], axis=1),
            "masked_positions": row * width + place + len(self._prompt),
        }
        return {**batch, "net_input": net_input, "ntokens": int(net_input["attention_mask"].sum())}
