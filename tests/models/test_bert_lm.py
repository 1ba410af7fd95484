import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForPreTraining, BertModel, RobertaConfig, RobertaForMaskedLM

from xdpx.checkpoints.trusted import load_tensors
from xdpx.config.faults import ConfigError
from xdpx.models import models

TINY = {
    "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 16,
    "max_position_embeddings": 12, "vocab_size": 30,
}  # fmt: skip


def build(name="bert_pretrain", **keys):
    kind = models[name]
    torch.manual_seed(0)
    classes = {"num_classes": 2} if name == "bert_pretrain" else {}
    return kind(kind.Parameters(**{"pretrained_model": None, **classes, **TINY, **keys}))


def inputs():
    ids = torch.tensor([[2, 5, 6, 3, 7, 3], [2, 5, 3, 9, 3, 0]])
    return {
        "input_ids": ids, "attention_mask": ids != 0, "masked_positions": torch.tensor([1, 4, 9]),
        "token_type_ids": torch.tensor([[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0]]),
    }  # fmt: skip


def test_it_is_bert_for_pretraining_of_transformers(tmp_path):
    torch.manual_seed(1)
    reference = BertForPreTraining(BertConfig(**TINY)).eval()
    reference.save_pretrained(tmp_path)
    model = build(pretrained_model=str(tmp_path)).eval()
    model.load_pretrained(load_tensors)
    given = inputs()
    tokens, classes = model(**given)
    expected = reference(given["input_ids"], given["attention_mask"], given["token_type_ids"])
    flat = expected.prediction_logits.flatten(0, 1)[given["masked_positions"]]
    np.testing.assert_allclose(tokens.detach(), flat.detach(), atol=1e-5)
    np.testing.assert_allclose(classes.detach(), expected.seq_relationship_logits.detach(), atol=1e-5)


def test_a_classifier_of_other_classes_is_left_out(tmp_path):
    file = str(tmp_path / "model.safetensors")
    source = build()
    save_file({name: value.clone() for name, value in source.state_dict().items() if "decoder" not in name}, file)
    model = build(num_classes=3, pretrained_model=file)
    model.load_pretrained(load_tensors)
    assert model.cls.seq_relationship.weight.shape == (3, 8)
    assert torch.equal(model.bert.pooler.dense.weight, source.bert.pooler.dense.weight)


def test_the_head_of_roberta_is_taken_over(tmp_path, capsys):
    torch.manual_seed(1)
    reference = RobertaForMaskedLM(RobertaConfig(**TINY, pad_token_id=0, type_vocab_size=1)).eval()
    for weight in reference.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    reference.save_pretrained(tmp_path)
    model = build("bert_prompt", pretrained_model=str(tmp_path), pad_index=0).eval()
    model.load_pretrained(load_tensors)
    given = inputs()
    expected = reference(given["input_ids"], given["attention_mask"].long()).logits.flatten(0, 1)
    np.testing.assert_allclose(model(**given).detach(), expected[given["masked_positions"]].detach(), atol=1e-5)
    assert "warning" not in "".join(capsys.readouterr())


def test_a_head_that_begins_at_random_is_told_and_refused_for_prompts(tmp_path, capsys):
    BertModel(BertConfig(**TINY)).save_pretrained(tmp_path)
    for name in ("bert_lm", "bert_pretrain"):
        build(name, pretrained_model=str(tmp_path)).load_pretrained(load_tensors)
        assert "warning: " in (said := "".join(capsys.readouterr()))
        assert "has no head for masked tokens of BERT's form, so that it begins at random" in said
    with pytest.raises(ConfigError, match="prompts would be filled at random"):
        build("bert_prompt", pretrained_model=str(tmp_path)).load_pretrained(load_tensors)


@pytest.mark.parametrize("model_type", ["albert", "modernbert"])
def test_an_encoder_with_another_head_is_refused(model_type):
    with pytest.raises(ConfigError, match=f"head of BERT, and '{model_type}' has one of another form. Use albert_lm"):
        build("bert_lm", model_type=model_type)


def test_gradients_reach_every_weight():
    tokens, classes = build()(**inputs())
    model = build()
    tokens, classes = model(**inputs())
    (tokens.sum() + classes.pow(2).sum()).backward()
    assert not [name for name, weight in model.named_parameters() if weight.grad is None]
