"""Replaced-token detection: masked blocks, and the chance by which a generator fills the masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from xdpx.config.parameters import param
from xdpx.processors.base import Batch
from xdpx.processors.bert_lm import BertLMProcessor
from xdpx.processors.randomness import bits, key, units
from xdpx.processors.samples import Integers, Ragged

NOISE = 5
"""Counter of the draw of a token that chooses what the generator puts in its place. Others use 0 to 4."""


class ElectraProcessor(BertLMProcessor):
    """As `bert_lm`, every chosen token masked; batches also hold `noise` (M,): numbers in [0, 1), one per mask.

    Source: Clark et al., "ELECTRA", ICLR 2020, section 2.
    """

    class Parameters(BertLMProcessor.Parameters):
        """How much is masked, and how."""

        leave_unmasked_prob: float = param(0.0, doc="Share of these that are left as they are.", ge=0, le=1)
        random_token_prob: float = param(0.0, doc="Share of these that become a random token.", ge=0, le=1)

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
        """Give some samples, with the noise of their masks."""
        found = super()._rows(batch, start, stop)
        given = batch["net_input"]
        edges = np.array([start, stop]) * given["input_ids"].shape[1]
        found["net_input"]["noise"] = given["noise"][slice(*np.searchsorted(given["masked_positions"], edges))]
        return found
