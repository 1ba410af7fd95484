"""The built-in profiles: names of the first XDPX, networks of BERT's size with random weights."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.models.profiles import MASK, Profile
from xdpx.models.pytorch.mlman import Mlman

CHINESE = {"pad_index": 0, "vocab_size": 21128, "max_len": 512, "pretrained_model": None}
MASKED_SHARE = 0.15


class BertClassification(Profile):
    """`bert_classification` on short texts."""

    seq_len = 30

    def model_config(self) -> dict[str, Any]:
        """Return the keys of BERT base with two classes."""
        return {**CHINESE, "model": "bert_classification", "num_classes": 2}

    def create_fake_data(self) -> dict[str, Any]:
        """Return texts without padding."""
        return {"input_ids": self.random_ids()}


class BertLanguageModel(Profile):
    """`bert_lm` with 15 % masked tokens."""

    def model_config(self) -> dict[str, Any]:
        """Return the keys of BERT base."""
        return {**CHINESE, "model": "bert_lm"}

    def create_fake_data(self) -> dict[str, Any]:
        """Return texts with the same number of masked tokens in each row."""
        ids = self.random_ids()
        order = torch.rand(ids.shape).argsort(dim=1)
        ids[order < math.ceil(MASKED_SHARE * self.seq_len)] = MASK
        return {"input_ids": ids}


class AlbertLanguageModel(BertLanguageModel):
    """`albert_lm`, whose layers share weights."""

    def model_config(self) -> dict[str, Any]:
        """Return the keys of ALBERT base."""
        return {**CHINESE, "model": "albert_lm"}


class Memories(BertLanguageModel):
    """`bert_lm_pkm`: a product-key memory instead of one feed-forward layer."""

    def model_config(self) -> dict[str, Any]:
        """Return the keys of BERT base with a memory of 90 * 90 slots in layer 6."""
        sizes = {"mem_positions": [6], "mem_k_dim": 32, "mem_heads": 4, "mem_knn": 32, "mem_keys": 90}
        return {**CHINESE, **sizes, "model": "bert_lm_pkm"}


class LocalMemories(BertLanguageModel):
    """`bert_lm_lopkm`: the same with cells."""

    def model_config(self) -> dict[str, Any]:
        """Return the keys of BERT base with a memory of 4 cells in layer 6."""
        sizes = {"mem_positions": [6], "mem_k_dim": 32, "mem_heads": 4, "mem_knn": 32, "mem_keys": 45, "mem_cells": 4}
        return {**CHINESE, **sizes, "model": "bert_lm_lopkm"}


class Gates(BertLanguageModel):
    """`bert_lm_rezero`: gates instead of norms."""

    def model_config(self) -> dict[str, Any]:
        """Return the keys of BERT base."""
        return {**CHINESE, "model": "bert_lm_rezero"}


class Matching(Profile):
    """`mlman`, which compares a query with the shots of ten classes; also for the name mgimn of the first XDPX."""

    seq_len = 30
    classes, shots = 10, 3

    def model_config(self) -> dict[str, Any]:
        """Return the keys of a small BERT with matching."""
        layers = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4, "num_hidden_layers": 4}
        return {**CHINESE, **layers, "model": "mlman", "proj_hidden_size": 256}

    def build_module(self, **changes: Any) -> nn.Module:
        """Return the network wrapped for episodes."""
        return Episode(super().build_module(**changes), self.classes, self.shots)

    def create_fake_data(self) -> dict[str, Any]:
        """Return one episode: the shots of each class, and one query of each."""
        self.batch_size = self.classes * (self.shots + 1)
        return {"input_ids": self.random_ids(), "attention_mask": self.whole()}


class Episode(nn.Module):
    """A matching network with whole episodes as input."""

    def __init__(self, matching: Any, classes: int, shots: int) -> None:
        super().__init__()
        self.matching: Mlman = matching
        self._sizes = {"n_way": classes, "k_shot": shots, "q_query": 1}

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the logits of each query for each class."""
        return self.matching.match({"input_ids": input_ids, "attention_mask": attention_mask}, **self._sizes)
