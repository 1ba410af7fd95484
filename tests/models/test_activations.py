"""Looking into an encoder: what is seen is what it computes, and nothing changes for those who do not look."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from xdpx.config.faults import ConfigError
from xdpx.models import models
from xdpx.models.pytorch.modules.activations import capture_activations

IDS = torch.tensor([[2, 5, 7, 9, 3], [2, 6, 3, 0, 0]])
NET_INPUT = {"input_ids": IDS, "attention_mask": IDS > 0}


def encoder(name: str = "minilm", **keys: Any) -> Any:
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 12,
        "max_position_embeddings": 16, "pretrained_model": None, "initializer_range": 0.5,
    }  # fmt: skip
    kind = models[name]
    return kind(kind.Parameters(**{**sizes, **keys})).eval()


@pytest.mark.parametrize("model_type", ["bert", "roberta", "electra", "albert", "modernbert"])
def test_hidden_states_and_heads_of_every_layer_are_seen(model_type: str) -> None:
    model = encoder(model_type=model_type)
    seen = capture_activations(model, NET_INPUT)
    assert [tuple(each.shape) for each in seen.hidden] == [(2, 5, 8)] * 3
    assert [tuple(each.shape) for heads in seen.heads for each in heads] == [(2, 2, 5, 4)] * 6
    torch.testing.assert_close(seen.output, model(**NET_INPUT))


def test_what_is_seen_of_a_layer_is_what_its_own_weights_make_of_the_states_below() -> None:
    model = encoder()
    seen = capture_activations(model, NET_INPUT)
    looking = model.bert.encoder.layer[1].attention.self
    for part, found in zip((looking.query, looking.key, looking.value), seen.heads[1], strict=True):
        torch.testing.assert_close(found.transpose(1, 2).flatten(2), part(seen.hidden[1]))


def test_a_classifier_is_watched_as_a_whole_and_works_by_its_short_way_again_afterwards() -> None:
    model = encoder("bert_classification", num_classes=3)
    before = model(**NET_INPUT)
    seen = capture_activations(model, NET_INPUT)
    assert seen.heads[-1].query.shape == (2, 2, 5, 4)
    torch.testing.assert_close(seen.output, before)
    assert torch.equal(model(**NET_INPUT), before)
    assert not model.bert._forward_hooks
    assert not model.bert._forward_pre_hooks


def test_gradients_pass_through_what_is_seen_also_where_activations_are_computed_anew() -> None:
    plain, anew = encoder(), encoder(gradient_checkpointing=True)
    for model in (plain, anew):
        seen = capture_activations(model.train(), NET_INPUT)
        (seen.heads[0].query.square().sum() + seen.hidden[1].square().sum()).backward()
    wanted, found = (dict(model.named_parameters()) for model in (plain, anew))
    name = "bert.encoder.layer.0.attention.self.query.weight"
    assert wanted[name].grad.abs().sum() > 0
    assert found[name].grad.shape == wanted[name].grad.shape


@pytest.mark.parametrize(("model", "says"), [(nn.Linear(2, 2), "has no attention layers to capture: Linear")])
def test_a_model_without_attention_is_refused(model: nn.Module, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        capture_activations(model, NET_INPUT)


def test_an_architecture_that_cannot_be_watched_is_refused() -> None:
    with pytest.raises(ConfigError, match="is of the type 'deberta-v2', whose attention cannot be captured"):
        capture_activations(encoder(model_type="deberta-v2"), NET_INPUT)
