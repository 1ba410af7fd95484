import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, Trainer

from xdpx.optimizers.pytorch import groups


class Odd(nn.Module):
    """A module with every kind of name that says, or only seems to say, that a weight is not to decay."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Linear(2, 2)
        self.normal = nn.Linear(2, 2, bias=False)
        self.Q_Norm = nn.Linear(2, 2)
        self.rmsnorm1 = nn.Linear(2, 2)
        self.inner = nn.ModuleList([nn.Linear(2, 3), nn.LayerNorm(3), nn.BatchNorm1d(3)])
        self.unbiased_scale = nn.Parameter(torch.ones(2))
        self.scale = nn.Parameter(torch.ones(2))
        self.tied = self.normal
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def tiny(kind):
    torch.manual_seed(0)
    if kind is GPT2LMHeadModel:
        return kind(GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=20, n_positions=16))
    config = BertConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, vocab_size=20)
    return kind(config)


MODELS = [Odd, lambda: tiny(GPT2LMHeadModel), lambda: tiny(BertForSequenceClassification), lambda: nn.LayerNorm(3)]


@pytest.mark.parametrize("build", MODELS)
def test_the_names_that_decay_are_those_of_the_original_in_its_order(build):
    model = build()
    assert groups.decay_names(model) == Trainer.get_decay_parameter_names(None, model)


@pytest.mark.parametrize("build", MODELS)
def test_each_trained_weight_is_in_the_group_of_the_original(build):
    model = build()
    names = Trainer.get_decay_parameter_names(None, model)
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    first, second = groups.decay_groups(model, 0.01)
    assert [id(weight) for weight in first["params"]] == [id(w) for name, w in trained if name in names]
    assert [id(weight) for weight in second["params"]] == [id(w) for name, w in trained if name not in names]
    assert (first["weight_decay"], second["weight_decay"]) == (0.01, 0.0)


def test_frozen_weights_are_in_no_group():
    model = Odd()
    held = {id(weight) for group in groups.decay_groups(model, 0.1) for weight in group["params"]}
    assert not held & {id(weight) for weight in model.frozen.parameters()}


def test_a_users_own_choice_of_names_is_followed():
    model = Odd()
    first, _ = groups.decay_groups(model, 0.1, names=["scale"])
    assert [id(weight) for weight in first["params"]] == [id(model.scale)]


def test_weights_on_several_meshes_are_in_groups_of_their_own():
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    second.device_mesh = "a mesh"
    split = groups.by_mesh([{"params": [first, second], "weight_decay": 0.1}, {"params": [], "weight_decay": 0.0}])
    assert [[id(weight) for weight in group["params"]] for group in split] == [[id(first)], [id(second)]]
    assert [group["weight_decay"] for group in split] == [0.1, 0.1]
