import copy

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification
from transformers.integrations.neftune import activate_neftune, deactivate_neftune

from xdpx.models.pytorch.modules import neftune


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 6)

    def get_input_embeddings(self):
        return self.words

    def forward(self, ids):
        return self.words(ids)


IDS = torch.arange(8).view(2, 4)


def words():
    torch.manual_seed(0)
    return Words()


def bert():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**sizes, vocab_size=20))


def test_two_calls_in_training_differ_and_two_in_evaluation_do_not():
    model = words()
    with neftune.attach(model, 5.0):
        assert not torch.equal(model(IDS), model(IDS))
        model.eval()
        assert torch.equal(model(IDS), model(IDS))


def test_the_noise_fills_its_bounds_and_stays_within_them():
    model = words()
    clean = model(IDS)
    with neftune.attach(model, 5.0):
        noise = torch.stack([model(IDS) - clean for _ in range(50)])
    bound = 5.0 / (4 * 6) ** 0.5
    assert noise.abs().max() <= bound + 1e-6
    assert noise.abs().max() > 0.95 * bound
    assert abs(noise.mean()) < 0.1 * bound


@pytest.mark.parametrize("build", [words, bert])
def test_the_noise_is_that_of_the_original_number_by_number(build):
    found = []
    for attach, detach in (
        (neftune.attach, lambda model, handle: handle.remove()),
        (activate_neftune, deactivate_neftune),
    ):
        model = build().train()
        handle = attach(model, 7.3)
        torch.manual_seed(1)
        out = [model(ids) for ids in (IDS, IDS[:, :3], IDS)]
        found.append([getattr(each, "logits", each) for each in out])
        detach(model, handle)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_the_embedding_is_as_it_was_also_after_an_exception():
    model = words()
    with pytest.raises(RuntimeError, match="stop"), neftune.attach(model, 5.0):
        raise RuntimeError("stop")
    assert not model.words._forward_hooks
    assert not hasattr(model.words, "neftune_noise_alpha")
    assert torch.equal(model(IDS), model(IDS))


def test_removing_twice_does_no_harm():
    handle = neftune.attach(words(), 5.0)
    handle.remove()
    handle.remove()


def test_hooks_of_the_user_stay():
    model = words()
    model.words.register_forward_hook(lambda *_: None)
    neftune.attach(model, 5.0).remove()
    assert len(model.words._forward_hooks) == 1


def test_gradients_pass_through_the_noise():
    model = words()
    with neftune.attach(model, 5.0):
        model(IDS).sum().backward()
    assert torch.equal(model.words.weight.grad[:8], torch.ones(8, 6))


def test_wrappers_are_looked_through():
    model = words()
    handle = neftune.attach(nn.DataParallel(model), 5.0)
    assert model.words._forward_hooks
    handle.remove()


def test_a_model_with_noise_can_be_copied():
    model = words()
    with neftune.attach(model, 5.0):
        copied = copy.deepcopy(model)
    assert copied(IDS).shape == (2, 4, 6)


@pytest.mark.parametrize("alpha", [0, -1.0, float("nan"), float("inf")])
def test_a_size_that_is_no_size_is_refused(alpha):
    with pytest.raises(ValueError, match="neftune_noise_alpha: is .*. Use a number above 0"):
        neftune.attach(words(), alpha)


def test_a_model_that_does_not_name_its_embeddings_is_refused():
    with pytest.raises(AttributeError, match="Linear does not say which are its embeddings. Give it a method"):
        neftune.attach(nn.Linear(2, 2), 5.0)
