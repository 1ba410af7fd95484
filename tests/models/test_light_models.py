"""The light networks against what their papers say, worked out by hand."""

import math

import pytest
import torch

from xdpx.models import models
from xdpx.models.pytorch.bow import hashed_ngrams
from xdpx.models.pytorch.convolutional import halve
from xdpx.models.pytorch.modules.alignment import attend_to_each_other
from xdpx.models.pytorch.modules.recurrent import Recurrent, turned

SIZES = {"embedding_dim": 6, "hidden_size": 8, "vocab_size": 20, "pad_index": 0, "num_classes": 2, "dropout": 0.0}


def build(name, **keys):
    torch.manual_seed(0)
    kind = models[name]
    known = {key: value for key, value in {**SIZES, **keys}.items() if key in kind.Parameters.model_fields}
    return kind(kind.Parameters(**known)).eval()


def rows(*texts):
    width = max(map(len, texts))
    tokens = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts])
    return tokens, tokens != 0


def test_a_bag_of_words_does_not_see_their_order_but_one_of_pairs_does():
    first, second = rows([3, 4, 5]), rows([5, 3, 4])
    assert torch.allclose(build("bow")(*first), build("bow")(*second), atol=1e-6)
    pairs = build("bow", word_ngrams=2, ngram_buckets=97)
    assert not torch.allclose(pairs(*first), pairs(*second), atol=1e-4)


def test_a_bag_is_the_mean_of_the_vectors_of_words_and_of_pairs():
    model = build("bow", word_ngrams=2, ngram_buckets=97)
    words, pairs = model.embedding.table.weight, model.ngrams.table.weight
    buckets = [(a * 116_049_371 + b) % 97 for a, b in ((3, 4), (4, 5))]
    mean = (words[3] + words[4] + words[5] + pairs[buckets].sum(0)) / 5
    assert torch.allclose(model(*rows([3, 4, 5], [7] * 6))[0], model.classifier(mean), atol=1e-6)


def test_runs_of_words_with_padding_in_them_are_left_out():
    tokens, mask = rows([3, 4, 5], [6])
    real = [found.tolist() for _, found in hashed_ngrams(tokens, mask, 5, 97)]
    assert real == [[[True, True], [False, False]], [[True], [False]]]


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_both_directions_are_those_of_torch_on_each_text_alone(cell):
    torch.manual_seed(0)
    ours = Recurrent(cell, size_in=4, size_out=6, layers=1, dropout=0.0)
    theirs = getattr(torch.nn, cell.upper())(4, 3, batch_first=True, bidirectional=True)
    state = {name: value for name, value in ours.forwards[0].state_dict().items()}
    state |= {f"{name}_reverse": value for name, value in ours.backwards[0].state_dict().items()}
    theirs.load_state_dict(state)
    x, mask = torch.randn(2, 5, 4), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    found = ours(x, mask)
    for row, length in ((0, 5), (1, 3)):
        assert torch.allclose(found[row, :length], theirs(x[row : row + 1, :length])[0][0], atol=1e-6)


def test_a_text_is_turned_around_within_its_own_length():
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    assert turned(mask).tolist() == [[2, 1, 0, 3], [0, 1, 2, 3]]


def test_an_lstm_forgets_nothing_at_first():
    cells = build("lstm").encoder.forwards[0]
    assert cells.bias_ih_l0[4:8].tolist() == [1.0] * 4
    assert not cells.bias_hh_l0.any()


def test_gated_units_need_three_quarters_of_the_weights():
    lstm, gru = (sum(w.numel() for w in build(name).encoder.parameters()) for name in ("lstm", "gru"))
    assert gru * 4 == lstm * 3


@pytest.mark.parametrize("name", ["lstm", "gru", "match_lstm", "match_gru", "esim"])
def test_a_width_that_two_directions_cannot_share_is_refused(name):
    known = models[name].Parameters(embedding_dim=6, hidden_size=7)
    assert "even" in dict(known.conflicts())["hidden_size"]


def test_the_pyramid_halves_the_length_and_keeps_the_largest_of_three():
    x = torch.tensor([[[1.0], [5.0], [2.0], [3.0], [9.0]]])
    found, mask = halve(x, torch.tensor([[True, True, True, True, False]]))
    assert found[0, :, 0].tolist()[:2] == [5.0, 5.0]
    assert mask.tolist() == [[True, True, False]]


def test_a_text_of_one_word_passes_a_pyramid_of_any_height():
    assert build("dpcnn", blocks=6)(*rows([3])).isfinite().all()


def test_in_a_pyramid_the_input_of_a_block_is_added_as_it_is():
    block = build("dpcnn").blocks[0]
    for layer in (block.first, block.second):
        torch.nn.init.zeros_(layer.weight)
    x = torch.randn(1, 4, 8)
    assert torch.equal(block(x, torch.ones(1, 4, dtype=torch.bool)), x)


def test_texts_see_each_other_by_the_softmax_of_their_scores():
    a, b = torch.randn(1, 2, 3), torch.randn(1, 3, 3)
    scores = torch.randn(1, 2, 3)
    mask_a, mask_b = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[True, True, False]])
    by_a, by_b = attend_to_each_other(scores, a, b, mask_a, mask_b)
    weight = math.exp(scores[0, 0, 0]) / (math.exp(scores[0, 0, 0]) + math.exp(scores[0, 0, 1]))
    assert torch.allclose(by_a[0, 0], weight * b[0, 0] + (1 - weight) * b[0, 1], atol=1e-6)
    assert torch.allclose(by_b[0, 0], scores[0, :, 0].softmax(0) @ a[0], atol=1e-6)


def test_dssm_is_a_scaled_cosine_of_two_vectors_of_length_one():
    model = build("dssm")
    first, second = rows([3, 4]), rows([5])
    a, b = model.encode(*first), model.encode(*second, second=True)
    assert torch.allclose(a.norm(dim=-1), torch.ones(1), atol=1e-6)
    cosine = (a * b).sum().item()
    assert torch.allclose(model(*first, *second)[0], torch.tensor([-10 * cosine, 10 * cosine]), atol=1e-5)


def test_towers_may_differ():
    shared, apart = build("dssm"), build("dssm", share_towers=False)
    text = rows([3, 4])
    assert torch.equal(shared.encode(*text), shared.encode(*text, second=True))
    assert not torch.allclose(apart.encode(*text), apart.encode(*text, second=True), atol=1e-3)


def test_dssm_gives_the_cosine_itself_where_a_loss_compares_pairs():
    texts = (*rows([3, 4], [5]), *rows([5], [5]))
    cosine = build("dssm", prediction="cosine")(*texts)
    assert cosine.shape == (2,)
    assert torch.allclose(cosine[1], torch.tensor(1.0), atol=1e-6)
    assert torch.allclose(build("dssm")(*texts)[:, 1], 10 * cosine, atol=1e-5)


def learned(name, given, target, steps=60, **keys):
    """Return the share of rows that a model knows after some steps on all of them."""
    torch.manual_seed(0)
    model = build(name, **keys).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(*given), target).backward()
        optimizer.step()
    return (model.eval()(*given).argmax(-1) == target).float().mean()


@pytest.mark.parametrize("name", ["bow", "lstm", "gru", "dpcnn"])
def test_a_classifier_learns_which_word_decides(name):
    dice = torch.Generator().manual_seed(1)
    noise = torch.randint(4, 20, (32, 7), generator=dice)
    target = torch.arange(32) % 2
    noise[torch.arange(32), torch.randint(0, 7, (32,), generator=dice)] = 2 + target
    assert learned(name, (noise, noise != 0), target) == 1


@pytest.mark.parametrize("name", ["match_lstm", "match_gru", "esim", "dssm"])
def test_a_matcher_learns_whether_two_texts_begin_alike(name):
    dice = torch.Generator().manual_seed(1)
    first = torch.randint(1, 20, (32, 3), generator=dice)
    target = torch.arange(32) % 2
    second = torch.where(target[:, None] == 1, first, torch.randint(1, 20, (32, 3), generator=dice))
    assert learned(name, (first, first != 0, second, second != 0), target, steps=100) > 0.95


@pytest.mark.parametrize("name", ["cnn_regression", "re2_regression"])
def test_a_number_is_told_in_the_units_of_the_labels(name):
    keys = {"blocks": 1, "encoder_layers": 1}
    texts = rows([3, 4, 5], [6]) * (2 if name == "re2_regression" else 1)
    plain = build(name, **keys)(*texts)
    model = build(name, label_values=[1000.0, 3000.0], standardize=True, **keys)
    assert plain.shape == (2,)
    assert torch.allclose(model(*texts), 2000 + 1000 * plain)
    assert not {"units.centre", "units.spread"} & set(model.state_dict())
    assert torch.isfinite(build(name, label_values=[7.0], standardize=True, **keys)(*texts)).all()
