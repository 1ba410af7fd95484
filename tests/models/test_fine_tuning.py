"""What is done to a pretrained BERT before it is fine-tuned: mixout, adapters, several dropout masks."""

import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from xdpx.config.faults import ConfigError
from xdpx.models import models
from xdpx.models.pytorch.modules.dropout import MixoutLinear

SIZES = {
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
    "vocab_size": 30,
    "num_classes": 2,
}
IDS = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])
TEXTS = {"input_ids": IDS, "attention_mask": IDS != 0}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def build(pretrained_model=None, seed=0, **keys):
    kind = models["bert_classification"]
    torch.manual_seed(seed)
    model = kind(kind.Parameters(pretrained_model=pretrained_model, **{**SIZES, **QUIET, **keys}))
    model.load_pretrained(torch.load)
    return model


@pytest.fixture
def file(tmp_path):
    save_file(
        {name: each.clone() for name, each in build(seed=1).bert.state_dict().items()}, tmp_path / "w.safetensors"
    )
    return str(tmp_path / "w.safetensors")


def test_mixout_of_all_but_nothing_is_the_pretrained_layer_and_its_mean_is_the_weight():
    linear = nn.Linear(3, 2)
    mixed, given = MixoutLinear(linear, 0.9), torch.randn(4, 3)
    assert torch.allclose(mixed(given), linear(given))  # nothing has been trained
    anchor = linear.weight.detach().clone()
    nn.init.normal_(linear.weight)
    torch.manual_seed(0)
    seen = torch.stack([mixed(torch.eye(3)).detach() - linear.bias for _ in range(4000)])
    share = (seen - anchor.t()).abs() < 1e-6
    assert float(share.float().mean()) == pytest.approx(0.9, abs=0.01)
    assert torch.allclose(seen.mean(dim=0), linear.weight.t(), atol=0.3)
    assert torch.allclose(mixed.eval()(given), linear(given))


def test_the_anchors_are_the_pretrained_weights_and_come_back_from_a_checkpoint(file):
    model = build(file, mixout=0.5)
    layer = model.bert.encoder.layer[0].attention.self.query
    assert isinstance(layer, MixoutLinear)
    assert torch.equal(layer.anchor, layer.weight)
    nn.init.zeros_(layer.weight)
    again = build(file, mixout=0.5)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.bert.encoder.layer[0].attention.self.query.anchor, layer.anchor)


def test_mixout_predicts_as_the_plain_network_does(file):
    assert torch.allclose(build(file, mixout=0.7).eval()(**TEXTS), build(file).eval()(**TEXTS))


def test_several_masks_are_averaged_in_training_only():
    model = build(output_dropout_prob=0.5, dropout_samples=400)
    clean = model.eval()(**TEXTS)
    model.train()
    few = build(output_dropout_prob=0.5)
    assert torch.allclose(model(**TEXTS), clean, atol=0.02)
    assert not torch.allclose(few.train()(**TEXTS), clean, atol=1e-4)


@pytest.mark.parametrize(
    ("keys", "idle"),
    [
        ({"dropout_samples": 4}, "dropout_samples"),
        ({"mixout": 0.1}, "mixout"),
        ({"layer_lr_decay": 0.9, "fix_lm": True}, "layer_lr_decay"),
        ({"layer_lr_decay": 0.9, "model_type": "albert"}, "layer_lr_decay"),
    ],
)
def test_a_trick_that_changes_nothing_is_named(keys, idle):
    assert idle in build(**keys).idle_keys()
    assert not build(layer_lr_decay=0.9, dropout_samples=4, output_dropout_prob=0.1).idle_keys()


def test_without_peft_adapters_are_refused_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match="adapters: needs the package peft"):
        build(adapters={"r": 2})


@pytest.mark.parametrize("more", [{"mixout": 0.1}, {"fix_lm": True}])
def test_adapters_contradict_what_else_decides_about_the_encoder(more):
    kind = models["bert_classification"]
    known = kind.Parameters(pretrained_model=None, adapters={}, **SIZES, **more)
    assert [key for key, _ in known.conflicts()] == ["adapters"]


class TestWithPeft:
    """Runs where the package is installed."""

    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("peft")

    def test_only_adapters_and_what_stands_above_the_encoder_are_trained(self, file):
        model = build(file, adapters={"peft_type": "lora", "r": 2, "target_modules": ["query", "value"]})
        trained = [name for name, each in model.named_parameters() if each.requires_grad]
        assert trained
        assert all("lora_" in name or name.startswith("classifier") for name in trained)
        assert {id(each) for group in model.parameter_groups(0.1) for each in group["params"]} == {
            id(each) for each in model.parameters() if each.requires_grad
        }

    def test_pretrained_weights_find_their_places_so_that_new_adapters_change_nothing(self, file):
        plain = build(file).eval()
        model = build(file, adapters={"r": 2}).eval()
        model.classifier = plain.classifier
        assert torch.allclose(model(**TEXTS), plain(**TEXTS), atol=1e-6)
        again = build(adapters={"r": 2}, seed=4)
        again.load_state_dict(model.state_dict())
        assert torch.equal(again.eval()(**TEXTS), model(**TEXTS))

    @pytest.mark.parametrize("wanted", [{"peft_type": "lorry"}, {"rank": 2}, {"r": 2, "target_modules": ["nowhere"]}])
    def test_what_peft_does_not_know_is_refused(self, wanted):
        with pytest.raises(ConfigError, match="adapters"):
            build(adapters=wanted)
