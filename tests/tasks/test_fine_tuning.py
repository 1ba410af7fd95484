"""Parts that begin to train later, and noise on the embeddings of a training."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from xdpx.config.faults import ConfigError
from xdpx.trainer.hooks import callbacks


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(5, 4)
        self.layer = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.top = nn.Linear(4, 2)

    def get_input_embeddings(self):
        return self.embeddings


def trained_at(callback, model, step, total=100):
    """Return which parts train in the update after `step`."""
    callback.on_step_begin(None, SimpleNamespace(global_step=step, max_steps=total), None, model=model)
    return {name.rpartition(".")[0] for name, weight in model.named_parameters() if weight.requires_grad}


def begun(until):
    model, callback = Net(), callbacks["freeze"](until=until)
    callback.on_train_begin(None, SimpleNamespace(global_step=0, max_steps=100), None, model=model)
    return callback, model


def test_parts_are_set_free_at_their_updates_and_never_where_there_is_none():
    callback, model = begun({"embeddings": None, "layer.0.": 0.5, "layer.1.": 10})
    assert trained_at(callback, model, 0) == {"top"}
    assert trained_at(callback, model, 9) == {"top"}
    assert trained_at(callback, model, 10) == {"top", "layer.1"}
    assert trained_at(callback, model, 49) == {"top", "layer.1"}
    assert trained_at(callback, model, 50) == {"top", "layer.1", "layer.0"}
    assert trained_at(callback, model, 99) == {"top", "layer.1", "layer.0"}


def test_a_resumed_training_freezes_what_the_uninterrupted_one_does():
    callback, model = begun({"layer": 10})
    assert trained_at(callback, model, 30) == {"embeddings", "top", "layer.0", "layer.1"}


@pytest.mark.parametrize(("until", "told"), [(100, True), (1.0, True), (99, False), (None, False)])
def test_parts_that_would_be_set_free_after_the_end_are_told(until, told, caplog):
    begun({"embeddings": until})
    assert ("never trains these weights, as training has 100" in caplog.text) == told


@pytest.mark.parametrize("until", [-3, "200", True, float("nan")])
def test_an_end_that_is_no_update_is_refused(until):
    with pytest.raises(ConfigError, match="freeze: until has"):
        callbacks["freeze"](until={"embeddings": until})


@pytest.mark.parametrize("alpha", ["5", -1.0, float("nan")])
def test_noise_of_no_size_is_refused(alpha):
    with pytest.raises(ConfigError, match="neftune: alpha is"):
        callbacks["neftune"](alpha=alpha)


def test_the_last_of_several_texts_counts():
    callback, model = begun({"layer": None, "layer.1.": 10})
    assert trained_at(callback, model, 20) == {"embeddings", "top", "layer.1"}


@pytest.mark.parametrize(("until", "words"), [({"pooler": 5}, "pooler"), ({"e": 5, "t": 1}, "nothing is left")])
def test_a_schedule_that_cannot_work_is_refused(until, words):
    with pytest.raises(ConfigError, match=words):
        begun(until)


def test_embeddings_are_noisy_in_training_only_and_no_more_when_it_ended():
    model, callback, ids = Net(), callbacks["neftune"](alpha=5.0), torch.tensor([[1, 2]])
    clean = model.embeddings(ids)
    callback.on_train_begin(None, None, None, model=model)
    noisy = model.embeddings(ids)
    assert 0 < float((noisy - clean).detach().abs().max()) <= 5.0 / 8**0.5
    assert torch.equal(model.eval().embeddings(ids), clean)
    callback.on_train_end(None, None, None)
    assert torch.equal(model.train().embeddings(ids), clean)


def test_a_model_without_token_vectors_is_refused():
    with pytest.raises(ConfigError, match="neftune"):
        callbacks["neftune"]().on_train_begin(None, None, None, model=nn.Linear(2, 2))
