import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForTokenClassification,
    LlamaConfig,
    LlamaForCausalLM,
)

from xdpx import Trainer, TrainingArguments
from xdpx.trainer.loss.counts import LossTally
from xdpx.trainer.loss.measuring import follows_count, mean_over_targets

COUNT = "num_items_in_batch"
LABELS = torch.tensor([[1, 2, 3, 0], [2, -100, -100, -100], [3, 1, -100, -100]])


def tiny_llama(**keys):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaConfig(**sizes, vocab_size=8, pad_token_id=0, **keys)


def batch(labels=LABELS, count=4):
    return {"input_ids": torch.ones_like(LABELS), "labels": labels, COUNT: torch.tensor(count)}


def test_it_is_measured_whether_a_model_divides_by_the_count_it_takes():
    classifier = AutoModelForSequenceClassification.from_config(tiny_llama(num_labels=2))
    assert follows_count(LlamaForCausalLM(tiny_llama()), batch(), COUNT) is True
    assert follows_count(classifier, batch(torch.tensor([0, 1, 1])), COUNT) is False
    assert follows_count(LlamaForCausalLM(tiny_llama()), batch(torch.full_like(LABELS, -100)), COUNT) is None


def test_measuring_leaves_modes_and_random_numbers_as_they_were():
    model = LlamaForCausalLM(tiny_llama(attention_dropout=0.5))
    model.train()
    model.lm_head.eval()
    before = torch.get_rng_state()
    follows_count(model, batch(), COUNT)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert not model.lm_head.training


def of_each_row(logits, labels):
    losses = functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    return losses.sum(1), labels.ne(-100).sum(1)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (lambda sums, counts: sums.sum() / counts.sum(), (True, True)),
        (lambda sums, counts: (sums / counts).mean(), (False, True)),
        (lambda sums, counts: sums.mean(), (False, True)),
    ],
)
def test_a_mean_over_targets_is_told_from_means_over_rows_where_rows_differ(form, expected):
    torch.manual_seed(0)
    logits = torch.randn(3, 4, 8)
    assert mean_over_targets(form(*of_each_row(logits, LABELS)), {"logits": logits}, LABELS) == expected


def test_rows_with_equally_many_targets_prove_nothing_and_shifted_labels_are_seen():
    torch.manual_seed(0)
    logits, even = torch.randn(3, 4, 8), LABELS[:1].repeat(3, 1)
    mean = functional.cross_entropy(logits.flatten(0, 1), even.flatten())
    assert mean_over_targets(mean, (mean, logits), even) == (True, False)
    shifted = functional.cross_entropy(logits[:, :-1].flatten(0, 1), LABELS[:, 1:].flatten())
    assert mean_over_targets(shifted, {"logits": logits}, LABELS) == (True, True)
    hidden = {"hidden": torch.zeros(3, 4, 9), "logits": logits}
    assert mean_over_targets(shifted, hidden, LABELS) == (True, True), "another output of the shape of logits"


@pytest.mark.parametrize("labels", [LABELS.float(), LABELS[:, :2], None, LABELS + 10])
def test_a_loss_without_logits_for_its_labels_is_no_mean_over_targets(labels):
    assert mean_over_targets(torch.tensor(1.0), {"logits": torch.zeros(3, 4, 8)}, labels) == (False, True)


class Counting(nn.Module):
    """A model that counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, **kwargs):
        self.calls += 1
        return {"loss": x.sum()}


def test_measuring_does_not_count_as_a_call_in_the_buffers_of_a_model():
    model = Counting()
    assert follows_count(model, {"x": torch.ones(2), COUNT: torch.tensor(3)}, COUNT) is False
    assert model.calls == 0


class Tagger(nn.Module):
    """A tagger whose loss is a mean over sentences, as that of a CRF, or over words."""

    def __init__(self, over_words):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.over_words = nn.Embedding(8, 8), over_words

    def forward(self, input_ids, labels=None):
        logits = self.embedding(input_ids)
        sums, counts = of_each_row(logits, labels)
        return {"loss": sums.sum() / counts.sum() if self.over_words else sums.mean(), "logits": logits}


def rows():
    dice = torch.Generator().manual_seed(1)
    labels = torch.randint(8, (7, 4), generator=dice)
    for row, length in enumerate((4, 1, 2, 3, 1, 4, 2)):
        labels[row, length:] = -100
    return [{"input_ids": torch.randint(8, (4,), generator=dice), "labels": each} for each in labels]


def arguments(folder, **changes):
    return TrainingArguments(str(folder), use_cpu=True, disable_tqdm=True, report_to="none", **changes)


@pytest.mark.parametrize("over_words", [True, False])
def test_the_loss_of_an_evaluation_is_that_of_one_batch_of_all_rows(over_words, tmp_path):
    found = [
        Trainer(Tagger(over_words), arguments(tmp_path, per_device_eval_batch_size=size)).evaluate(rows())["eval_loss"]
        for size in (2, 3, 7)
    ]
    assert found == pytest.approx([found[-1]] * 3, rel=1e-6)


def first_step(model, data, folder, size, steps):
    args = arguments(
        folder, max_steps=1, per_device_train_batch_size=size, gradient_accumulation_steps=steps, max_grad_norm=0,
        logging_steps=1, save_strategy="no", train_sampling_strategy="sequential",
    )  # fmt: skip
    trainer = Trainer(model, args, train_dataset=data)
    trainer.train()
    return [trainer.state.log_history[0][name] for name in ("loss", "grad_norm")]


class Passing(nn.Module):
    """A model that hands any keyword on to another, which uses none."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = BertForTokenClassification(
            BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=8,
                       num_labels=8, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
        )  # fmt: skip

    def forward(self, input_ids, labels=None, **kwargs):
        return self.inner(input_ids, labels=labels, **kwargs)


class OfRows(Tagger):
    def forward(self, input_ids, labels=None, **kwargs):
        return super().forward(input_ids, labels, **({} if kwargs.get("never") else {}))


def classifier():
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_config(tiny_llama(num_labels=2))


@pytest.mark.parametrize("build", [classifier, Passing, lambda: OfRows(over_words=False)])
def test_a_mean_stays_a_mean_over_an_update_whatever_the_code_of_a_model_looks_like(build, tmp_path):
    data = rows()[:6]
    if build is classifier:
        data = [{**row, "labels": row["input_ids"][0] % 2} for row in data]
    whole, parts = (first_step(build(), data, tmp_path, *sizes) for sizes in ((6, 1), (2, 3)))
    assert parts == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize(
    ("known", "of_others", "mean"), [(None, (1, 0), 2.5), (None, (0, 0), 3.0), (True, (1, 1), 3.0)]
)
def test_a_process_that_knows_nothing_does_not_decide_what_losses_are_means_over(known, of_others, mean, monkeypatch):
    def with_others(sums):
        return sums + torch.tensor([0.0] * 4 + list(of_others), dtype=sums.dtype)

    tally = LossTally(torch.device("cpu"))
    tally.add(torch.tensor(2.0), 3, 1)
    tally.add(torch.tensor(4.0), 1, 1)
    monkeypatch.setattr("xdpx.engines.pytorch.collectives.sum_over_ranks", with_others)
    assert tally.mean(over_targets=known) == mean
