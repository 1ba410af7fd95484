import pytest
import torch
from transformers.optimization import Adafactor as Original

from xdpx.optimizers.pytorch.adafactor import Adafactor

CHOICES = [
    {"lr": 0.1, "scale_parameter": False, "relative_step": False},
    {"lr": 0.1, "scale_parameter": False, "relative_step": False, "weight_decay": 0.2},
    {"lr": 0.1, "scale_parameter": True, "relative_step": False, "weight_decay": 0.2, "beta1": 0.9},
    {},
    {"warmup_init": True, "clip_threshold": 0.3},
]


def weights(dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(*shape, dtype=dtype)) for shape in ((5, 3), (7,), (2, 3, 4))]


def steps(optimizer, trained, number=6):
    for step in range(number):
        for index, weight in enumerate(trained):
            weight.grad = torch.sin(weight.detach() * (index + 2) + step)
        optimizer.step()


@pytest.mark.parametrize("keys", CHOICES)
def test_weights_move_as_with_the_original(keys):
    ours, theirs = weights(), weights()
    steps(Adafactor(ours, **keys), ours)
    steps(Original(theirs, **keys), theirs)
    assert all(torch.allclose(a, b, atol=1e-6, rtol=1e-6) for a, b in zip(ours, theirs, strict=True))


def test_half_precision_weights_move_as_with_the_original():
    ours, theirs = weights(torch.bfloat16), weights(torch.bfloat16)
    steps(Adafactor(ours, **CHOICES[1]), ours)
    steps(Original(theirs, **CHOICES[1]), theirs)
    assert all(torch.allclose(a, b, atol=2e-2) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("first", "second"), [(Original, Adafactor), (Adafactor, Original)])
def test_either_goes_on_from_the_state_of_the_other(first, second):
    straight, handed = weights(), weights()
    steps(Original(straight, **CHOICES[2]), straight, 3)
    begun = first(handed, **CHOICES[2])
    steps(begun, handed, 3)
    reference = Original(straight, **CHOICES[2])
    source = Original(weights(), **CHOICES[2])
    steps(source, source.param_groups[0]["params"], 3)
    reference.load_state_dict(source.state_dict())
    resumed = second(handed, **CHOICES[2])
    resumed.load_state_dict(begun.state_dict())
    steps(reference, straight, 3)
    steps(resumed, handed, 3)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(straight, handed, strict=True))


def test_a_weight_without_a_gradient_stays():
    (weight, *_) = weights()
    before = weight.detach().clone()
    Adafactor([weight]).step()
    assert torch.equal(weight, before)


@pytest.mark.parametrize(
    ("keys", "message"),
    [({"lr": 0.1}, "Set relative_step=False"), ({"relative_step": False, "warmup_init": True}, "warmup_init belongs")],
)
def test_contradictions_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        Adafactor(weights(), **keys)


def test_sparse_gradients_are_refused():
    words = torch.nn.Embedding(4, 2, sparse=True)
    words(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="Use dense gradients"):
        Adafactor(words.parameters()).step()
