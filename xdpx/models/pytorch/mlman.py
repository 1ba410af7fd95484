"""Few-shot learning that compares a query with a class at the levels of words, rows and the whole class.

Letters: E episodes, N classes, K shots, M queries (Q of each class), T positions, U those of all shots, P width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert import Bert, new_linear
from xdpx.models.pytorch.modules.dropout import Dropout


class MatchesEpisodes(nn.Module):
    """A network with its own comparison of queries with the shots of classes, for loss `fewshot`."""

    def match(self, net_input: Mapping[str, Any], *, n_way: int, k_shot: int, q_query: int) -> Tensor:
        """Return logits (E, M, N) of whole episodes: rows cycle through N classes, K shots of each before Q queries."""
        raise NotImplementedError


class Mlman(MatchesEpisodes, Bert):
    """BERT with multi-level matching and aggregation; its states replace those of the paper's LSTMs.

    The vectors of a query depend on the shots of a class and vice versa, so a class has no vector of its own: `match`
    compares them. `forward` returns the maximum and the mean of a row's states.

    Source: Ye and Ling, "Multi-Level Matching and Aggregation Network for Few-Shot Relation Classification", ACL 2019,
    section 3, equations 2 to 13, without the penalty on differing shots.
    """

    class Parameters(Bert.Parameters):
        """Keys of `mlman`."""

        output_dropout_prob: float = declare.param(
            0.1, ge=0, lt=1, doc="Share of the features of states set to 0 in training."
        )
        proj_hidden_size: int = declare.param(768, ge=1, doc="Width of the states that are compared.")

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        width = parameters.proj_hidden_size
        self.project = new_linear(int(self.config.hidden_size), width, self.config)
        self.fuse = new_linear(4 * width, width, self.config)
        self.compare = new_linear(4 * width, width, self.config)
        self.score = new_linear(width, 1, self.config)
        self.dropout = Dropout(parameters.output_dropout_prob)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return a vector (B, 2 P) of each row by itself; the mask is true (or 1) at real tokens."""
        states = self._states(input_ids, attention_mask, token_type_ids)
        return pooled(states, attention_mask.bool())

    def match(self, net_input: Mapping[str, Any], *, n_way: int, k_shot: int, q_query: int) -> Tensor:
        """Return logits (E, M, N) of each query for each class."""
        states = self._states(net_input["input_ids"], net_input["attention_mask"], net_input.get("token_type_ids"))
        mask = net_input["attention_mask"].bool()
        states, mask = (each.view(-1, k_shot + q_query, n_way, *each.shape[1:]) for each in (states, mask))
        query, query_mask = states[:, k_shot:].flatten(1, 2), mask[:, k_shot:].flatten(1, 2)
        shot, shot_mask = states[:, :k_shot].transpose(1, 2), mask[:, :k_shot].transpose(1, 2)
        return self._matched(query, query_mask, shot, shot_mask)

    def _states(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> Tensor:
        hidden = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        states: Tensor = self.dropout(self.project(hidden))
        return states

    def _matched(self, query: Tensor, query_mask: Tensor, shot: Tensor, shot_mask: Tensor) -> Tensor:
        """Compare queries (E, M, T, P) with shots (E, N, K, T, P); return logits (E, M, N)."""
        joined, joined_mask = shot.flatten(2, 3), shot_mask.flatten(2, 3)
        alike = torch.einsum("emtp,enup->emntu", query.float(), joined.float())
        of_shots = alike.masked_fill(~joined_mask[:, None, :, None, :], -1e9).softmax(dim=-1).to(query.dtype)
        of_query = alike.masked_fill(~query_mask[:, :, None, :, None], -1e9).softmax(dim=-2).to(query.dtype)
        seen_by_query = torch.einsum("emntu,enup->emntp", of_shots, joined)
        seen_by_shots = torch.einsum("emntu,emtp->emnup", of_query, query)
        query = self._fused(query[:, :, None].expand_as(seen_by_query), seen_by_query)
        shots = self._fused(joined[:, None].expand_as(seen_by_shots), seen_by_shots)
        shots = shots.view(*shots.shape[:3], *shot.shape[2:4], -1)
        row = pooled(query, query_mask[:, :, None])
        each = pooled(shots, shot_mask[:, None])
        share = self._fit(each, row[..., None, :].expand_as(each)).softmax(dim=-1)
        whole = (share[..., None] * each).sum(dim=-2)
        return self._fit(whole, row)

    def _fused(self, own: Tensor, seen: Tensor) -> Tensor:
        fused: Tensor = self.fuse(torch.cat([own, seen, (own - seen).abs(), own * seen], dim=-1)).relu()
        return fused

    def _fit(self, left: Tensor, right: Tensor) -> Tensor:
        found: Tensor = self.score(self.compare(torch.cat([left, right], dim=-1)).relu()).squeeze(-1)
        return found


def pooled(states: Tensor, mask: Tensor) -> Tensor:
    """Return the maximum and the mean over real tokens, (..., 2 P), of states (..., T, P); the mask is (..., T)."""
    inside = mask.unsqueeze(-1)
    highest = states.masked_fill(~inside, torch.finfo(states.dtype).min).amax(dim=-2)
    mean = (states * inside).sum(dim=-2) / inside.sum(dim=-2)
    return torch.cat([highest, mean], dim=-1)
