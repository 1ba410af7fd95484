"""How batches of x-train are laid out for JAX."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.models.pytorch.bert_classification import BertClassification as TorchClassification
from xdpx.models.pytorch.bert_lm import BertLanguageModel as TorchLanguageModel
from xdpx.models.pytorch.causal_lm import CausalLanguageModel as TorchCausal
from xdpx.models.spmd.counterparts import BertClassification, BertLanguageModel, CausalLanguageModel, Shape

SIZES = {"vocab_size": 30, "pad_index": 0, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 16, "max_position_embeddings": 12}  # fmt: skip


def batch_of(width: int = 3, **more: Any) -> dict[str, Any]:
    ids = np.arange(2 * width).reshape(2, width) + 5
    net_input = {"input_ids": ids, "attention_mask": np.ones((2, width), bool)}
    return {"id": np.arange(2), "net_input": {**net_input, **more}, "target": np.array([1, 0]), "ntokens": 6}


@pytest.fixture(scope="module")
def classifier() -> BertClassification:
    known = TorchClassification.Parameters(pretrained_model=None, num_classes=2, **SIZES)
    return BertClassification(TorchClassification(known))


def test_rows_that_only_fill_up_have_no_weight(classifier: BertClassification) -> None:
    found = classifier.arranged(batch_of(), Shape(4, 8))
    assert found["weights"].tolist() == [1, 1, 0, 0]
    assert found["input_ids"].shape == found["attention_mask"].shape == (4, 8)
    assert found["input_ids"].dtype == np.int32
    assert not found["attention_mask"][:, 3:].any()
    assert found["ntokens"] == 6


def test_texts_that_are_too_long_and_other_kinds_of_text_are_refused(classifier: BertClassification) -> None:
    with pytest.raises(ConfigError, match="positions for 12 tokens"):
        classifier.shape_of(batch_of(13))
    with pytest.raises(ConfigError, match="takes attention_mask, input_ids, token_type_ids, but the processor gives"):
        classifier.shape_of(batch_of(tokens2=np.zeros((2, 3))))


def test_places_of_guessed_tokens_are_counted_within_their_row() -> None:
    made = BertLanguageModel(TorchLanguageModel(TorchLanguageModel.Parameters(pretrained_model=None, **SIZES)))
    batch = {**batch_of(masked_positions=np.array([1, 3, 5])), "target": np.array([21, 22, 23])}
    shape = made.shape_of(batch)
    assert shape == Shape(2, 3, 2)
    found = made.arranged(batch, Shape(3, 8, 4))
    assert found["places"].tolist() == [[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0]]
    assert found["target"].tolist() == [[21, 0, 0, 0], [22, 23, 0, 0], [0, 0, 0, 0]]
    assert found["weights"].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]


def test_what_has_no_next_token_has_no_weight() -> None:
    made = CausalLanguageModel(TorchCausal(TorchCausal.Parameters(**SIZES)))
    target = np.array([[6, 7, -100], [9, -100, -100]])
    found = made.arranged({**batch_of(), "target": target}, Shape(3, 4))
    assert found["target"].tolist() == [[6, 7, 0, 0], [9, 0, 0, 0], [0, 0, 0, 0]]
    assert found["weights"].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]


def test_an_architecture_that_is_not_computed_here_is_refused_by_name() -> None:
    config = SimpleNamespace(to_dict=lambda: {"model_type": "roberta", "max_position_embeddings": 8})
    reference = SimpleNamespace(config=config, parameters_used=SimpleNamespace(gradient_checkpointing=False))
    with pytest.raises(ConfigError, match="model_type: is 'roberta'"):
        BertLanguageModel(reference)
