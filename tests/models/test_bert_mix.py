"""The model of mixed granularity, and noise on what its BERT gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.models import models
from xdpx.models.pytorch.bert_mix import largest_of_words
from xdpx.tasks import tasks

NET_INPUT = {
    "input_ids": torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0]]),
    "attention_mask": torch.tensor([[True] * 5, [True, True, True, False, False]]),
    "word_index": torch.tensor([[0, 1, 1, 2, 0], [0, 1, 0, 0, 0]]),
    "words": torch.tensor([[4, 5], [6, 0]]),
    "word_mask": torch.tensor([[True, True], [True, False]]),
}
BATCH = {"net_input": NET_INPUT, "target": torch.tensor([0, 1]), "id": torch.arange(2)}


def mix(**keys: Any) -> Any:
    torch.manual_seed(0)
    kind = models["bert_mix"]
    sizes = {
        "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 12,
        "max_position_embeddings": 16, "pretrained_model": None, "word_vocab_size": 9, "embedding_dim": 4,
        "char_hidden_size": 6, "encoder_hidden_size": 6, "fusion_hidden_size": 6, "num_classes": 2,
        "initializer_range": 0.5,
    }  # fmt: skip
    return kind(kind.Parameters(**{**sizes, **keys})).eval()


def test_the_largest_value_of_each_feature_is_taken_over_the_pieces_of_a_word() -> None:
    features = torch.tensor([[[9.0, 9.0], [1.0, -2.0], [-1.0, 5.0], [-3.0, -4.0], [9.0, 9.0]]])
    found = largest_of_words(features, torch.tensor([[0, 1, 1, 2, 0]]), 3)
    assert found.tolist() == [[[1.0, 5.0], [-3.0, -4.0], [0.0, 0.0]]]


def test_pieces_and_words_both_matter_and_can_be_left_out() -> None:
    plain = mix()(**NET_INPUT)
    other_word = {**NET_INPUT, "words": torch.tensor([[4, 8], [6, 0]])}
    assert not torch.allclose(mix()(**other_word)[0], plain[0])
    torch.testing.assert_close(mix()(**other_word)[1], plain[1])
    only_pieces = mix(word_emb=False)
    torch.testing.assert_close(only_pieces(**other_word), only_pieces(**NET_INPUT))
    only_words = mix(char_emb=False, concat_cls=False)
    shown = only_words(**{**NET_INPUT, "input_ids": NET_INPUT["input_ids"] % 5})
    torch.testing.assert_close(shown, only_words(**NET_INPUT))


def test_what_was_read_may_be_given_in_place_of_reading_it_again() -> None:
    model = mix(bert_seq_layer=1)
    pieces = model.read(NET_INPUT["input_ids"], NET_INPUT["attention_mask"])
    torch.testing.assert_close(model(**NET_INPUT, pieces=pieces), model(**NET_INPUT))


def test_looking_at_nothing_is_refused() -> None:
    known = models["bert_mix"].Parameters(pretrained_model=None, embedding_dim=4, word_emb=False, char_emb=False)
    assert [key for key, _ in known.conflicts()] == ["word_emb"]


@pytest.mark.parametrize("name", ["freelb", "freelb_cnn"])
def test_noise_on_what_bert_gives_leaves_padding_alone_and_reaches_all_weights(name: str) -> None:
    kind, loss = tasks[name], losses["cross_entropy"]
    model = mix().train()
    task = kind(kind.Parameters(model="bert_mix", loss="cross_entropy"), model, loss(loss.Parameters()))
    task.begin_update(1)
    bottom = task.bottom_predict(BATCH)
    assert list(bottom) == ["input_ids"]
    assert task.masks(BATCH, bottom)["input_ids"][..., 0].tolist() == NET_INPUT["attention_mask"].tolist()
    for loss_sum, _, _ in task.train_passes(BATCH):
        loss_sum.backward()
    without = [key for key, weight in model.named_parameters() if weight.grad is None]
    assert without == []


def test_without_noise_freelb_cnn_is_a_plain_step() -> None:
    kind, loss = tasks["freelb_cnn"], losses["cross_entropy"]
    gradients = []
    for steps in (1, 3):
        model = mix()
        keys = {"rand_init_mag": 0.0, "adv_lr": 0.0, "adv_steps": steps}
        task = kind(kind.Parameters(model="bert_mix", loss="cross_entropy", **keys), model, loss(loss.Parameters()))
        task.begin_update(1)
        for loss_sum, _, _ in task.train_passes(BATCH):
            loss_sum.backward()
        gradients.append({key: weight.grad for key, weight in model.named_parameters()})
        plain = mix()
        task.loss(plain, BATCH)[0].backward()
        for key, weight in plain.named_parameters():
            torch.testing.assert_close(gradients[-1][key], weight.grad, msg=key, rtol=1e-4, atol=1e-6)


def test_a_layer_that_bert_lacks_is_refused() -> None:
    assert mix(bert_seq_layer=0)(**NET_INPUT).shape == (2, 2)
    with pytest.raises(ConfigError, match="bert_seq_layer: is 3, but BERT has 2 layers. Use a number from 0"):
        mix(bert_seq_layer=3)


def test_freelb_cnn_is_freelb_above_the_word_vectors_of_a_light_network() -> None:
    light, kind, loss = models["lstm"], tasks["freelb_cnn"], losses["cross_entropy"]
    model = light(light.Parameters(vocab_size=9, embedding_dim=4, hidden_size=4, num_classes=2))
    task = kind(kind.Parameters(model="lstm", loss="cross_entropy"), model, loss(loss.Parameters()))
    task.begin_update(1)
    texts = {"tokens": torch.tensor([[2, 3], [4, 0]]), "mask": torch.tensor([[True, True], [True, False]])}
    for loss_sum, _, _ in task.train_passes({**BATCH, "net_input": texts}):
        loss_sum.backward()
    assert all(weight.grad is not None for weight in model.parameters())
