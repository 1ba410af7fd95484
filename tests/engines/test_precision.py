"""In which numbers a model computes."""

import copy
import inspect
import pickle
from collections import OrderedDict

import pytest
import torch
from torch import nn

from xdpx.engines.pytorch.precision import Precision, in_float32

CPU = torch.device("cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.seen = None

    def forward(self, values, *, labels=None):
        out = self.linear(values)
        self.seen = out.dtype
        return OrderedDict(logits=out, parts=(out, None, labels))


def test_no_precision_changes_nothing_and_makes_nothing():
    model, precision = Net(), Precision("no", CPU)
    precision.attach(model)
    assert "forward" not in vars(model)
    assert precision.autocast() is precision.autocast()
    assert precision.scaler is None


def test_the_forward_pass_alone_computes_in_bf16_and_gives_float32():
    model = Net()
    Precision("bf16", CPU).attach(model)
    outputs = model(torch.ones(1, 3), labels=torch.ones(1, dtype=torch.long))
    assert model.seen is torch.bfloat16
    assert outputs["logits"].dtype is torch.float32
    assert outputs["parts"][0].dtype is torch.float32
    assert outputs["parts"][1] is None
    assert outputs["parts"][2].dtype is torch.long
    assert isinstance(outputs, OrderedDict)
    assert model.linear.weight.dtype is torch.float32
    assert model.linear(torch.ones(1, 3)).dtype is torch.float32


def test_the_signature_of_the_model_stays_to_be_asked_for():
    model = Net()
    before = inspect.signature(model.forward)
    Precision("bf16", CPU).attach(model)
    assert inspect.signature(model.forward) == before


def test_attaching_twice_is_attaching_once_and_can_be_taken_back():
    model, precision = Net(), Precision("bf16", CPU)
    detach = precision.attach(model)
    inner = model.forward
    precision.attach(model)
    assert model.forward is inner
    detach()
    assert "forward" not in vars(model)
    model(torch.ones(1, 3))
    assert model.seen is torch.float32


def test_a_forward_that_somebody_has_put_there_comes_back():
    model = Net()
    model.forward = own = lambda values: values.to(torch.bfloat16)
    detach = Precision("bf16", CPU).attach(model)
    assert model(torch.ones(2)).dtype is torch.float32
    detach()
    assert model.forward is own


def test_a_model_in_bf16_can_be_copied_and_the_copy_uses_its_own_weights():
    model = Net()
    Precision("bf16", CPU).attach(model)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301  # written a word before
        nn.init.zeros_(twin.linear.weight)
        nn.init.zeros_(twin.linear.bias)
        assert twin(torch.ones(1, 3))["logits"].tolist() == [[0.0, 0.0]]
        assert model(torch.ones(1, 3))["logits"].abs().sum() > 0


def test_a_model_in_bf16_can_be_compiled_as_a_whole():
    model = Net()
    Precision("bf16", CPU).attach(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    outputs = compiled(torch.ones(1, 3))
    assert outputs["logits"].dtype is torch.float32


def test_full_precision_evaluation_casts_the_weights():
    model = Net()
    precision = Precision("bf16", CPU, full=True)
    precision.attach(model)
    assert model.linear.weight.dtype is torch.bfloat16
    assert precision.autocast() is precision.autocast()
    assert Precision("fp16", CPU, full=True).scaler is None


def test_steps_without_a_scale_are_plain_steps():
    model, precision = Net(), Precision("bf16", CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    precision.backward(model(torch.ones(1, 3))["logits"].sum())
    precision.unscale(optimizer)
    before = model.linear.bias.clone()
    assert precision.step(optimizer, 1) is False
    assert torch.equal(model.linear.bias, before - 1)


def test_fp16_scales_the_loss_and_leaves_out_steps_that_overflow():
    model, precision = Net(), Precision("fp16", CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    precision.backward(model(torch.ones(1, 3))["logits"].sum())
    assert float(model.linear.bias.grad[0]) == precision.scaler.get_scale() == 65536.0
    precision.unscale(optimizer)
    assert float(model.linear.bias.grad[0]) == 1.0
    before = model.linear.bias.clone()
    assert precision.step(optimizer, 1) is False
    assert torch.equal(model.linear.bias, before - 1)
    optimizer.zero_grad()
    precision.backward(model(torch.ones(1, 3))["logits"].sum() * float("inf"))
    precision.unscale(optimizer)
    assert precision.step(optimizer, 1) is True
    assert torch.equal(model.linear.bias, before - 1)
    assert precision.scaler.get_scale() == 32768.0


def test_outputs_without_half_precision_are_given_back_themselves():
    tree = {"a": torch.ones(1), "b": [None, "text"]}
    assert in_float32(tree) is tree
    assert in_float32("text") == "text"
    assert in_float32(torch.ones(1, dtype=torch.float16)).dtype is torch.float32


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="is 'fp8'. Use no, bf16 or fp16"):
        Precision("fp8", CPU)
