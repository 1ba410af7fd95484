"""FreeLB for networks that stand above a BERT: noise on what it gives, where no pass has to go through it again."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from xdpx.losses.base import Batch
from xdpx.tasks.freelb import FreeLB
from xdpx.tasks.noise import Features, Result

FEATURE = "input_ids"
"""Padding of what BERT gives is where that of its pieces is."""


class FreeLBCNN(FreeLB):
    """As `freelb`, with noise on what BERT gives instead of its token vectors, in models such as `bert_mix`.

    A model that says what it reads (`read`) and takes that as `pieces` is cut there; any other one above its token
    vectors.

    Source: Zhu et al., "FreeLB: Enhanced Adversarial Training for Natural Language Understanding", ICLR 2020,
    algorithm 1.
    """

    class Parameters(FreeLB.Parameters):
        """Keys of `freelb_cnn`."""

    def __init__(self, parameters: Any, model: nn.Module, loss: Any) -> None:
        super().__init__(parameters, model, loss)
        self._cut_above_bert = hasattr(model, "read") and "pieces" in inspect.signature(model.forward).parameters

    def bottom_predict(self, batch: Batch) -> dict[str, Tensor]:
        """Give what BERT makes of the pieces."""
        if not self._cut_above_bert:
            return super().bottom_predict(batch)
        given, read = batch["net_input"], self.model.read
        return {FEATURE: read(given["input_ids"], given["attention_mask"], given.get("token_type_ids"))}  # type: ignore[operator]

    def upper_predict(self, batch: Batch, features: Features) -> Result:
        """Give loss sum, count and facts of a batch for which BERT gives these features."""
        if not self._cut_above_bert:
            return super().upper_predict(batch, features)
        return self.loss(self.model, {**batch, "net_input": {**batch["net_input"], "pieces": features[FEATURE]}})
