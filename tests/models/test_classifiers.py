"""Classifiers that look at more than the pooled first token."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from xdpx.config.faults import ConfigError
from xdpx.models import models
from xdpx.models.pytorch.bert_classification import text_vectors

SIZES: dict[str, Any] = {
    "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 3, "intermediate_size": 8, "vocab_size": 20,
    "num_classes": 3, "pretrained_model": None,
}  # fmt: skip
IDS = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])


def build(name: str, **keys: Any) -> Any:
    torch.manual_seed(0)
    return models[name](models[name].Parameters(**{**SIZES, **keys})).eval()


def test_the_first_token_of_the_chosen_layers_is_looked_at() -> None:
    model = build("bert_classification_concat", highway_layers=[-1, 0])
    hidden = model.bert(IDS, output_hidden_states=True).hidden_states
    expected = torch.tanh(model.joined(torch.cat([hidden[3][:, 0], hidden[1][:, 0]], dim=-1)))
    assert torch.allclose(model.features(IDS, torch.ones_like(IDS), None), expected, atol=1e-6)


@pytest.mark.parametrize("layers", [[], [-1, 2], [3], [-4]])
def test_layers_that_are_not_there_are_refused(layers: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"highway_layers.*3 layers.*-3 to 2"):
        build("bert_classification_concat", highway_layers=layers)


def test_tokens_that_weigh_alike_are_averaged_without_the_padding() -> None:
    model = build("bert_classification_self_attn", attn_hidden_size=5)
    torch.nn.init.zeros_(model.weighing.weight)
    hidden = model.encode(IDS, IDS != 0).last_hidden_state
    expected = torch.stack([hidden[0].mean(dim=0), hidden[1, :3].mean(dim=0)])
    assert torch.allclose(model.features(IDS, IDS != 0, None), expected, atol=1e-6)


def test_both_texts_of_a_pair_are_read_by_one_encoder_and_compared() -> None:
    model = build("sbert_nli")
    pair = IDS.unsqueeze(0)
    u, v = (model.features(row[row != 0][None], torch.ones(1, int((row != 0).sum()))) for row in IDS)
    expected = model.classifier(torch.cat([u, v, (u - v).abs()], dim=-1))
    assert torch.allclose(model(pair, pair != 0), expected, atol=1e-6)


@pytest.mark.parametrize(("pooling", "expected"), [("mean", [2.0, 5.0]), ("max", [3.0, 5.0]), ("first", [1.0, 5.0])])
def test_a_text_is_the_mean_the_maximum_or_the_first_of_its_tokens(pooling: str, expected: list[float]) -> None:
    hidden = torch.tensor([[[1.0], [3.0]], [[5.0], [9.0]]])
    mask = torch.tensor([[True, True], [True, False]])
    assert text_vectors(hidden, mask, pooling).squeeze(-1).tolist() == expected
