"""BERT with gates in place of the norms of its layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from xdpx.config.faults import ConfigError
from xdpx.models import models

SIZES: dict[str, Any] = {
    "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 8, "vocab_size": 20,
    "pretrained_model": None,
}  # fmt: skip
IDS = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])


def build(name: str = "bert_classification_rezero", **keys: Any) -> Any:
    torch.manual_seed(0)
    classes = {"num_classes": 3} if name == "bert_classification_rezero" else {}
    return models[name](models[name].Parameters(**SIZES, **classes, **keys)).eval()


def test_layers_begin_as_nothing() -> None:
    model = build()
    embedded = model.bert.embeddings(input_ids=IDS)
    assert torch.equal(model.encode(IDS, IDS != 0).last_hidden_state, embedded)


def test_each_part_adds_what_it_makes_times_its_gate() -> None:
    model = build()
    part = model.bert.encoder.layer[0].output
    torch.nn.init.constant_(part.gate, 0.5)
    made, came_in = torch.randn(1, 2, 8), torch.randn(1, 2, 8)
    assert torch.allclose(part(made, came_in), came_in + 0.5 * part.dense(made))


def test_the_short_last_layer_knows_the_gates() -> None:
    model = build()
    for name, weight in model.named_parameters():
        if name.endswith("gate"):
            torch.nn.init.constant_(weight, 0.7)
    whole = model.bert.pooler(model.encode(IDS, IDS != 0).last_hidden_state)
    assert torch.allclose(model.pool(IDS, IDS != 0), whole, atol=1e-6)


def test_no_norm_is_left_in_the_layers_and_gates_do_not_decay() -> None:
    model = build("bert_lm_rezero")
    assert not [name for name, _ in model.bert.encoder.named_parameters() if "LayerNorm" in name]
    gates = {id(weight) for name, weight in model.named_parameters() if name.endswith("gate")}
    groups = [group for group in model.parameter_groups(0.1) if gates & {id(weight) for weight in group["params"]}]
    assert len(gates) == 4
    assert [group["weight_decay"] for group in groups] == [0.0]


def test_encoders_without_norms_behind_their_parts_are_refused() -> None:
    with pytest.raises(ConfigError, match="model_type: is 'modernbert'"):
        build(model_type="modernbert")
