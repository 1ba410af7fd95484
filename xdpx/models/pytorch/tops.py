"""What stands behind the vectors of texts, whatever made these: logits of one text, or of two that are compared.

Both go in front of a model among the bases of a class; the model has `pool`, which gives a vector per text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.models.pytorch.modules.prediction import Matching, MatchingPrediction, prediction
from xdpx.models.pytorch.word_model import given


class MatchingKeys(declare.Parameters):
    """How two vectors are compared."""

    prediction: Matching = declare.param("full", doc="Which features of the two vectors the classifier sees.")


class OfOneText:
    """Two layers behind the vector of a text."""

    pool: Callable[[Tensor, Tensor], Tensor]
    pooled_size: int

    def __init__(self, parameters: Any, **more: Any) -> None:
        super().__init__(parameters, **more)  # type: ignore[call-arg]
        num_classes = given(parameters.num_classes, "num_classes")
        self.prediction = prediction(self.pooled_size, parameters.hidden_size, num_classes, parameters.dropout)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Give logits (B, num_classes) of tokens (B, T); mask (B, T) is true at real tokens."""
        logits: Tensor = self.prediction(self.pool(tokens, mask))
        return logits


class OfTwoTexts:
    """A comparison of the vectors of two texts that the same layers have read."""

    pool: Callable[[Tensor, Tensor], Tensor]
    pooled_size: int

    def __init__(self, parameters: Any, **more: Any) -> None:
        super().__init__(parameters, **more)  # type: ignore[call-arg]
        num_classes = given(parameters.num_classes, "num_classes")
        self.prediction = MatchingPrediction(
            parameters.prediction, self.pooled_size, parameters.hidden_size, num_classes, dropout=parameters.dropout
        )

    def forward(self, tokens1: Tensor, mask1: Tensor, tokens2: Tensor, mask2: Tensor) -> Tensor:
        """Give logits (B, num_classes) of tokens1 (B, T) and tokens2 (B, S); masks are true at real tokens."""
        logits: Tensor = self.prediction(self.pool(tokens1, mask1), self.pool(tokens2, mask2))
        return logits
