"""Multi-sample dropout: one classifier, read through several masks at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def classified(features: Tensor, dropout: nn.Module, classifier: nn.Module, *, samples: int) -> Tensor:
    """Give logits (B, C) of features (B, H): in training the mean under so many dropout masks.

    Source: Inoue, "Multi-Sample Dropout for Accelerated Training and Better Generalization", 2019, section 2, with the
    mean taken over logits, so that any loss may follow; the paper takes it over losses.
    """
    count = samples if dropout.training else 1
    logits: Tensor = torch.stack([classifier(dropout(features)) for _ in range(count)]).mean(dim=0)
    return logits
