"""Texts inside templates with blanks, and the classes that the guesses stand for."""

import numpy as np
import pytest
import torch
from torch import nn

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.processors import processors
from xdpx.processors.samples import Samples
from xdpx.tokenizers.vocabulary import Vocabulary

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "it", "was", "good", "bad", "very", "film"]
PAD, CLS, SEP, MASK, SOFT, IT, WAS, GOOD, BAD, VERY, FILM = 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11


def build(tmp_path, labels="bad\nvery good\n", **keys):
    (tmp_path / "labels.txt").write_text(labels)
    kind = processors["bert_prompt_single"]
    known = kind.Parameters(max_len=12, num_classes=2, labels_ext=str(tmp_path / "labels.txt"), **keys)
    return kind(known, vocabulary=Vocabulary(WORDS))


def samples(processor, *texts):
    made = [processor.numerize({"tokens": text}, number % 2) for number, text in enumerate(texts)]
    return Samples.from_dicts(made, processor.columns(labelled=True))


def test_the_template_stands_around_the_text_and_its_blanks_are_found(tmp_path):
    processor = build(tmp_path, hard_templates=["it was [MASK] [TEXT]"], soft_prompt_length=1)
    batch = processor.collate(samples(processor, [FILM], [FILM, FILM]))
    ids = batch["net_input"]["input_ids"]
    assert ids.tolist() == [
        [CLS, SOFT, IT, WAS, MASK, MASK, FILM, SEP, PAD],
        [CLS, SOFT, IT, WAS, MASK, MASK, FILM, FILM, SEP],
    ]
    places = batch["net_input"]["masked_positions"]
    assert (ids.ravel()[places] == MASK).all()
    assert places.tolist() == sorted(places.tolist())
    assert batch["verbalizers"].tolist() == [[BAD, -1], [VERY, GOOD]]


def test_blanks_behind_a_text_are_found_too_and_the_cut_of_a_batch_keeps_them(tmp_path):
    processor = build(tmp_path, hard_templates=["[TEXT] was [MASK]"])
    batch = processor.collate(samples(processor, [FILM], [FILM, FILM, FILM], [IT, FILM]))
    for part in processor.split(batch, 3):
        ids = part["net_input"]["input_ids"].ravel()
        assert (ids[part["net_input"]["masked_positions"]] == MASK).all()
        assert part["verbalizers"].shape == (2, 2)


def test_a_long_text_is_cut_so_that_every_template_fits(tmp_path):
    processor = build(tmp_path, hard_templates=["it was [MASK] [TEXT]", "[MASK] [TEXT]"])
    assert processor.collate(samples(processor, [FILM] * 30))["net_input"]["input_ids"].shape == (1, 12)


def test_templates_change_from_epoch_to_epoch_but_not_with_the_batch(tmp_path):
    processor = build(tmp_path, hard_templates=["it [MASK] [TEXT]", "was [MASK] [TEXT]"])
    rows = samples(processor, *[[FILM]] * 12)

    def firsts(chosen, epoch):
        return processor.collate(chosen, epoch=epoch, seed=1, training=True)["net_input"]["input_ids"][:, 1].tolist()

    assert set(firsts(rows, 1)) == {IT, WAS}
    assert firsts(rows, 1) != firsts(rows, 2)
    assert firsts(rows.take(np.array([7])), 1) == firsts(rows, 1)[7:8]
    assert set(processor.collate(rows, seed=1)["net_input"]["input_ids"][:, 1].tolist()) == {IT}


@pytest.mark.parametrize(
    ("keys", "labels", "words"),
    [
        ({"hard_templates": ["nowhere [MASK] [TEXT]"]}, "bad\ngood\n", "nowhere"),
        ({}, "bad\n", "labels_ext"),
        ({}, "bad\nvery very good\n", "label_length"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(tmp_path, keys, labels, words):
    with pytest.raises(ConfigError, match=words):
        _ = build(tmp_path, labels, **keys).verbalizers


def test_a_template_without_a_place_for_the_text_is_refused():
    kind = processors["bert_prompt_single"]
    assert [key for key, _ in kind.Parameters(max_len=9, hard_templates=["it [MASK]"]).conflicts()] == [
        "hard_templates"
    ]


class Guess(nn.Module):
    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self):
        return self.logits


def test_the_class_with_the_best_mean_log_probability_wins():
    kind = losses["bert_prompt_loss"]
    torch.manual_seed(0)
    logits = torch.randn(4, len(WORDS))
    batch = {"net_input": {}, "target": torch.tensor([1, 0]), "verbalizers": torch.tensor([[BAD, -1], [VERY, GOOD]])}
    log_prob = logits.log_softmax(-1).view(2, 2, -1)
    score = torch.stack([log_prob[:, 0, BAD], (log_prob[:, 0, VERY] + log_prob[:, 1, GOOD]) / 2], dim=1)
    wanted = nn.functional.cross_entropy(score, batch["target"], reduction="sum")
    chosen = kind(kind.Parameters(use_r_dropout=False, lm_weight=0.5))
    loss_sum, count, facts = chosen(Guess(logits.tolist()), batch)
    likelihood = score[0, 1] + score[1, 0]
    assert (float(loss_sum.detach()), count) == (pytest.approx(float(wanted - 0.5 * likelihood), rel=1e-5), 2)
    found = chosen.predictions(Guess(logits.tolist()), batch)
    assert found["pred"].tolist() == score.argmax(dim=1).tolist()
    assert int(found["mlm_count"]) == int(facts["mlm_count"]) == 3
    assert "mlm_acc" in chosen.metrics({name: np.asarray(each.detach()) for name, each in found.items()})


class Twice(nn.Module):
    """Another guess in each pass, as dropout makes it."""

    def __init__(self, first, second):
        super().__init__()
        self.waiting = [first, second]

    def forward(self):
        return self.waiting.pop(0)


def test_with_r_drop_the_language_model_learns_from_both_passes():
    kind = losses["bert_prompt_loss"]
    torch.manual_seed(0)
    first, second = torch.randn(2, 4, len(WORDS))
    batch = {"net_input": {}, "target": torch.tensor([1, 0]), "verbalizers": torch.tensor([[BAD, -1], [VERY, GOOD]])}
    with_words, without = (
        float(kind(kind.Parameters(use_r_dropout=True, lm_weight=weight))(Twice(first, second), batch)[0])
        for weight in (1.0, 0.0)
    )
    both = torch.stack([first, second]).log_softmax(-1).view(2, 2, 2, -1)
    likelihood = (both[:, 0, 0, VERY] + both[:, 0, 1, GOOD]) / 2 + both[:, 1, 0, BAD]
    assert without - with_words == pytest.approx(float(likelihood.mean()), rel=1e-4)
