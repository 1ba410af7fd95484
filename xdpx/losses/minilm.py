"""MiniLM: the student's last layer imitates the relations between tokens in a layer of the teacher.

B texts, T positions, A heads, D features of a head. Student and teacher may differ in width and in depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.losses.arithmetic import scaled_scores
from xdpx.losses.base import Batch
from xdpx.losses.parameters import LossParameters
from xdpx.losses.taught import Imitation, teacher_result, unequal_heads
from xdpx.models.pytorch.modules.activations import Heads, capture_activations


class MiniLMLoss(Imitation):
    """KL divergence of attention and of value relations; with `relation_heads`, of query, key and value relations.

    Each is a mean over heads and real tokens, so that all texts have the same weight.

    Source: Wang et al., "MiniLM", NeurIPS 2020, equations 6 to 9; with `relation_heads` Wang et al., "MiniLMv2", ACL
    Findings 2021, equations 4 to 6, with the same weight for each relation.
    """

    hooks_model = True

    class Parameters(LossParameters):
        """Keys of `minilm`."""

        relation_heads: int | None = declare.param(
            None,
            gt=0,
            doc="Relate queries, keys and values in so many heads, as MiniLMv2 does, a divisor of both widths; null: "
            "attention and values, as MiniLM does.",
            alters="loss",
        )
        distilled_layer: int = declare.param(
            -1,
            doc="Layer of the teacher that the student's last one imitates, from 0; negative from the last.",
            alters="loss",
        )

    parameters: Parameters

    metric_names = dict.fromkeys(("loss", "attention_loss", "query_loss", "key_loss", "value_loss"))

    @property
    def reads_output(self) -> bool:
        """False: one layer is imitated, not the output."""
        return False

    def ask(self, teacher: nn.Module, net_input: Mapping[str, Any]) -> dict[str, Any]:
        """Return queries, keys and values of the teacher's layer that is imitated.

        Raises:
            ConfigError: it has no such layer.
        """
        heads, layer = capture_activations(teacher, net_input).heads, self.parameters.distilled_layer
        if not -len(heads) <= layer < len(heads):
            problem = f"is {layer}, but the teacher has {len(heads)} layers."
            remedy = f"Use a number from {-len(heads)} to {len(heads) - 1}, e.g. -1."
            raise refusal("distilled_layer", problem, remedy)
        return {"teacher_heads": heads[layer]}

    def parts(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return the divergence of each relation, (B,)."""
        theirs, ours = teacher_result(batch, "teacher_heads"), capture_activations(model, batch["net_input"]).heads[-1]
        mask = batch["net_input"]["attention_mask"].bool()
        pairs = zip(self._relations(theirs).items(), self._relations(ours).values(), strict=True)
        counts = unequal_heads(ours, theirs)
        if counts and self.parameters.relation_heads is None:
            remedy = "Set relation_heads to a divisor of both widths, or give the student as many heads."
            raise refusal("loss", f"is 'minilm', but {counts}.", remedy)
        return {
            name: divergence(relation(*teacher, mask), relation(*student, mask), mask)
            for (name, teacher), student in pairs
        }

    def _relations(self, heads: Heads) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the two vectors of each relation by its name, (B, A, T, D) each."""
        count = self.parameters.relation_heads
        if count is None:
            return {"attention_loss": (heads.query, heads.key), "value_loss": (heads.value, heads.value)}
        query, key, value = (regrouped(each, count) for each in heads)
        return {"query_loss": (query, query), "key_loss": (key, key), "value_loss": (value, value)}


def relation(left: Tensor, right: Tensor, mask: Tensor) -> Tensor:
    """Return log softmax(left right' / sqrt(D)) of vectors (B, A, T, D), over the real right tokens: (B, A, T, T).

    The mask (B, T) is true at real tokens.
    """
    found: Tensor = scaled_scores(left, right).masked_fill(~mask[:, None, None, :], -1e9).log_softmax(dim=-1)
    return found


def divergence(teacher: Tensor, student: Tensor, mask: Tensor) -> Tensor:
    """Return KL(teacher | student) of log probabilities (B, A, T, T), averaged over heads and real tokens, (B,)."""
    of_tokens = functional.kl_div(student, teacher, reduction="none", log_target=True).sum(dim=-1).mean(dim=1)
    return (of_tokens * mask).sum(dim=1) / mask.sum(dim=1)


def regrouped(each: Tensor, count: int) -> Tensor:
    """Split the features of each token into another number of heads: (B, A, T, D) to (B, count, T, A * D / count).

    Raises:
        ConfigError: they cannot be divided evenly.
    """
    joined = each.transpose(1, 2).flatten(2)
    width = joined.shape[-1]
    if width % count:
        problem = f"is {count}, which does not divide a width of {width}."
        raise refusal("relation_heads", problem, "Use a divisor of both widths.")
    return joined.view(*joined.shape[:2], count, width // count).transpose(1, 2)
