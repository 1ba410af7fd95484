"""Each question finds its passage among those of the batch. B rows, N passages."""

from __future__ import annotations

from torch import Tensor

from xdpx.losses.base import Gathered
from xdpx.losses.metrics import ratio
from xdpx.losses.metrics.named import OF_SCORES
from xdpx.losses.simcse import SimCSELoss


class BertDPRLoss(SimCSELoss):
    """Cross-entropy of a question's own passage against the passages of all rows of the batch, by cosine.

    The negatives are those of a micro-batch, on all processes that train together, so `batch_size` matters, and
    `update_freq` does not replace it.

    Source: Karpukhin et al., "Dense Passage Retrieval", EMNLP 2020, equation 2, with in-batch negatives (section 3.2)
    and cosines over a temperature in place of the dot product.
    """

    class Parameters(SimCSELoss.Parameters):
        """How sharp the comparison is."""

    parameters: Parameters

    metric_names = {**dict.fromkeys(("loss", "acc", "in_batch_mrr")), **OF_SCORES}

    def counts(self, logits: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Give how many questions find their passage, and the sum of the reciprocal ranks of the right ones."""
        before = (logits > logits.gather(1, target[:, None])).sum(dim=1)
        return super().counts(logits, target) | {"reciprocal": (1.0 / (before + 1)).sum()}

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Give loss (bits per question), acc and the mean reciprocal rank, both within batches."""
        mean = ratio(float(gathered["reciprocal"]), float(gathered["count"]), empty=float("nan"))
        return super().metrics(gathered) | {"in_batch_mrr": mean}
