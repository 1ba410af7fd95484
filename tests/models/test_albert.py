import numpy as np
import pytest
import torch
from transformers import AlbertConfig, AlbertForMaskedLM, AlbertForPreTraining

from xdpx.checkpoints.trusted import load_tensors
from xdpx.config.faults import ConfigError
from xdpx.models import models

TINY = {
    "hidden_size": 8, "embedding_size": 4, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 16,
    "max_position_embeddings": 12, "vocab_size": 30,
}  # fmt: skip


def build(name, **keys):
    kind = models[name]
    torch.manual_seed(0)
    classes = {"num_classes": 2} if name == "albert_pretrain" else {}
    return kind(kind.Parameters(**{"pretrained_model": None, **classes, **TINY, **keys}))


def inputs():
    ids = torch.tensor([[2, 5, 6, 3, 7, 3], [2, 5, 3, 9, 3, 0]])
    return {
        "input_ids": ids, "attention_mask": ids != 0, "masked_positions": torch.tensor([1, 4, 9]),
        "token_type_ids": torch.tensor([[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0]]),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["albert_lm", "albert_pretrain"])
def test_it_is_albert_of_transformers(name, tmp_path):
    torch.manual_seed(1)
    kind = AlbertForMaskedLM if name == "albert_lm" else AlbertForPreTraining
    reference = kind(AlbertConfig(**TINY)).eval()
    reference.save_pretrained(tmp_path)
    model = build(name, pretrained_model=str(tmp_path)).eval()
    model.load_pretrained(load_tensors)
    given = inputs()
    found = model(**given)
    expected = reference(given["input_ids"], given["attention_mask"], given["token_type_ids"])
    tokens = found if name == "albert_lm" else found[0]
    logits = expected.logits if name == "albert_lm" else expected.prediction_logits
    wanted = logits.flatten(0, 1)[given["masked_positions"]]
    np.testing.assert_allclose(tokens.detach(), wanted.detach(), atol=1e-5)
    if name == "albert_pretrain":
        np.testing.assert_allclose(found[1].detach(), expected.sop_logits.detach(), atol=1e-5)


def test_a_classifier_of_other_classes_is_left_out():
    source, model = build("albert_pretrain"), build("albert_pretrain", num_classes=3)
    kept = model.adapt(source.state_dict())
    assert not [name for name in kept if name.startswith("sop_classifier")]
    assert "predictions.dense.weight" in kept


def test_another_architecture_is_refused():
    with pytest.raises(ConfigError, match="predicts tokens as ALBERT does"):
        build("albert_lm", model_type="bert")
