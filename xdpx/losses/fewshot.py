"""Few-shot learning by prototypes. E episodes of a batch, N classes, K shots, Q queries of each class, H width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.losses.arithmetic import product, symmetric_divergence
from xdpx.losses.base import Batch, Gathered, Loss, output_of
from xdpx.losses.parameters import EpisodeShape, LossParameters
from xdpx.metrics import ratio
from xdpx.models.pytorch.mlman import MatchesEpisodes

TWO_SIDED_95 = 1.96
"""Standard errors on either side of the mean that contain 95 % of a normal distribution."""


class FewshotLoss(Loss):
    """Prototypical networks: a class is the mean vector of its K shots, a query is classified by its distance to each.

    Batches come from `sampler: episode`; the outputs of the model are taken as vectors, whatever the model.

    Source: Snell et al., "Prototypical Networks for Few-shot Learning", NeurIPS 2017, equations 1 and 2, algorithm 1;
    the cosine is that of Vinyals et al., "Matching Networks for One Shot Learning", NeurIPS 2016, section 2.1.
    """

    learns_labels: ClassVar[bool] = True

    class Parameters(LossParameters, EpisodeShape):
        """Keys of `fewshot`."""

        distance: Literal["euclidean", "cosine"] = declare.param(
            "euclidean", doc="Distance of a row from a class: squared, or by the angle, which `temperature` sharpens."
        )
        temperature: float = declare.param(
            0.05, gt=0, doc="Temperature: the divisor of cosines.", when=("distance", "is", "cosine")
        )
        use_r_dropout: bool = declare.param(False, doc="R-Drop: two passes with different dropout that must agree.")
        kl_alpha: float = declare.param(
            0.5, ge=0, doc="Weight of the divergence of the two passes.", when=("use_r_dropout", "is", True)
        )

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "acc", "acc_interval"))
    header: ClassVar[tuple[str, ...]] = ("vector",)
    compares_rows = True
    spans_processes = True

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int, dict[str, Tensor]]:
        """Return the sum over the queries of the batch, their number, and how many are classified right."""
        logits, target = self.episodes(model, batch)
        loss_sum = functional.cross_entropy(logits, target, reduction="sum")
        facts = {"correct": (logits.detach().argmax(dim=-1) == target).sum()}
        if self.parameters.use_r_dropout:
            second, _ = self.episodes(model, batch)
            self.tell_of_equal_passes(logits, second)
            likelihood = (loss_sum + functional.cross_entropy(second, target, reduction="sum")) / 2.0
            disagreement = symmetric_divergence(logits.log_softmax(dim=-1), second.log_softmax(dim=-1))
            facts |= {"kl_loss": disagreement.detach()}
            loss_sum = likelihood + self.parameters.kl_alpha * disagreement
        return loss_sum, len(target), facts

    def episodes(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return logits (E * Q * N, N) of all queries, and their classes within the episode, from 0 to N - 1.

        Raises:
            ConfigError: the batch does not consist of whole episodes.
        """
        known = self.parameters
        n_way, shots = known.n_way, known.k_shot + known.q_query
        first = next(iter(batch["net_input"].values()))
        num_rows = len(first)
        if num_rows % (n_way * shots):
            problem = f"has {num_rows} rows, but an episode has {n_way * shots}: n_way * (k_shot + q_query)."
            remedy = "Use sampler: episode and a batch_size that is a multiple of it."
            raise refusal("loss", f"a batch {problem}", remedy)
        target = torch.arange(n_way, device=first.device).repeat(num_rows // shots // n_way * known.q_query)
        if isinstance(model, MatchesEpisodes):
            shape = {"n_way": n_way, "k_shot": known.k_shot, "q_query": known.q_query}
            return model.match(batch["net_input"], **shape).float().flatten(0, 1), target
        vectors = output_of(model, batch)
        each = vectors.view(-1, shots, n_way, vectors.shape[-1])
        support, queries = each[:, : known.k_shot], each[:, known.k_shot :].flatten(1, 2)
        logits = self.nearness(queries, support.mean(dim=1))
        return logits.flatten(0, 1), target

    def nearness(self, rows: Tensor, prototypes: Tensor) -> Tensor:
        """Return logits (..., R, N): the similarity of rows (..., R, H) to prototypes (..., N, H)."""
        if self.parameters.distance == "cosine":
            rows, prototypes = functional.normalize(rows, dim=-1), functional.normalize(prototypes, dim=-1)
            return product(rows, prototypes.mT) / self.parameters.temperature
        squares = rows.square().sum(-1, keepdim=True) + prototypes.square().sum(-1)[..., None, :]
        return 2.0 * product(rows, prototypes.mT) - squares

    def predictions(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return for episodes whether each query is right, (E * Q * N,), and sums; otherwise vectors (B, H)."""
        if "drawn" not in batch:
            return {"vector": output_of(model, batch)}
        logits, target = self.episodes(model, batch)
        loss_sum = functional.cross_entropy(logits, target, reduction="sum")
        right = logits.argmax(dim=-1) == target
        return {"right": right, "loss_sum": loss_sum, "count": torch.tensor(len(target))}

    def metrics(self, gathered: Gathered) -> dict[str, float]:
        """Return loss (nats per query), acc, and acc_interval: half the width of the 95 % confidence interval.

        Raises:
            ConfigError: rows were not drawn as episodes.
        """
        known = self.parameters
        if "right" not in gathered:
            problem = "scores episodes, but held-out rows are not drawn as such."
            raise refusal("loss", problem, "Set sampler: episode, as in families/fewshot.")
        each = np.asarray(gathered["right"], np.float64).reshape(-1, known.n_way * known.q_query).mean(axis=1)
        error = each.std(ddof=1) / np.sqrt(len(each)) if len(each) > 1 else float("nan")
        return {
            "loss": self.mean_loss(gathered),
            "acc": float(each.mean()),
            "acc_interval": float(TWO_SIDED_95 * error),
        }

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Return loss (nats per query) and acc of the training episodes; with R-Drop also kl_loss."""
        found = super().train_metrics(facts)
        found["acc"] = ratio(facts["correct"], facts["count"], empty=float("nan"))
        if "kl_loss" in facts:
            found["kl_loss"] = self.in_unit(facts["kl_loss"], facts["count"])
        return found

    def rows(self, predictions: Mapping[str, Any], labels: Sequence[str] | None) -> Iterator[list[str]] | None:
        """Return the vector of each row as text; None if classes were predicted."""
        del labels
        if "vector" not in predictions:
            return None
        vectors = np.asarray(predictions["vector"], np.float64).round(6)
        return ([str(vector)] for vector in vectors.tolist())
