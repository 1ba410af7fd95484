import logging
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    default_data_collator,
)

from xdpx.trainer.data import columns
from xdpx.trainer.data.columns import Trimmed, trimmed, wanted_columns, without
from xdpx.trainer.data.loaders import eval_loader
from xdpx.trainer.data.options import LoaderOptions
from xdpx.trainer.data.randomness import Randomness


class Model(torch.nn.Module):
    def forward(self, ids, labels=None, **options):
        return ids


class Wrapper(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.module = inner

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


class TakesAnything(torch.nn.Module):
    def forward(self, **inputs):
        return inputs


ROWS = {"ids": [[1, 2], [3, 4]], "text": ["a", "b"], "label": [0, 1], "place": [7, 8]}


@pytest.fixture
def table():
    return Dataset.from_dict(ROWS)


@pytest.fixture(autouse=True)
def _log_is_read(caplog, monkeypatch):
    monkeypatch.setattr(columns, "_SAID", set())
    caplog.set_level(logging.INFO, logger="xdpx")


def test_a_model_takes_the_arguments_of_its_forward_and_labels():
    assert wanted_columns(Model(), ["targets"]) == ["ids", "labels", "label", "label_ids", "targets"]


def test_a_model_of_transformers_is_read_through_its_decorators():
    config = BertConfig(hidden_size=4, num_attention_heads=1, num_hidden_layers=1, intermediate_size=4, vocab_size=9)
    assert {"input_ids", "attention_mask", "labels"} <= set(wanted_columns(BertForSequenceClassification(config), []))


@pytest.mark.parametrize("wrap", [Wrapper, lambda model: Wrapper(Wrapper(model)), torch.compile])
def test_wrappers_are_looked_through(wrap):
    assert wanted_columns(wrap(Model()), []) == wanted_columns(Model(), [])


def test_a_model_that_takes_anything_gets_everything(table):
    assert wanted_columns(TakesAnything(), []) is None
    dataset, collator = trimmed(table, default_data_collator, None)
    assert dataset is table
    assert collator is default_data_collator


def test_columns_are_cut_from_a_dataset_and_named_once(table, caplog):
    for _ in range(2):
        dataset, collator = trimmed(table, default_data_collator, wanted_columns(Model(), []), model_name="Model")
        assert dataset.column_names == ["ids", "label"]
        assert collator is default_data_collator
    assert caplog.messages == [
        "Columns of the training data that Model.forward does not take are left out: text, place. Set "
        "remove_unused_columns=False to keep them."
    ]


def test_two_columns_that_become_labels_are_told_of(table, caplog):
    trimmed(table, default_data_collator, wanted_columns(Model(), []))
    assert "makes one the labels" not in caplog.text
    both = table.add_column("labels", [1, 0])
    trimmed(both, default_data_collator, wanted_columns(Model(), []), description="evaluation")
    assert "evaluation data: has label and labels, of which" in caplog.text


def test_samples_that_are_no_dataset_are_cut_as_they_are_collated(caplog):
    rows = [{"ids": [1], "text": "a"}, {"ids": [2], "text": "b"}]
    dataset, collator = trimmed(rows, list, ["ids"])
    assert dataset is rows
    assert collator(rows) == [{"ids": [1]}, {"ids": [2]}]
    assert len(caplog.messages) == 1


def test_a_transform_sees_all_columns(table):
    table = table.with_transform(lambda batch: {"ids": [len(text) for text in batch["text"]], "more": batch["place"]})
    dataset, collator = trimmed(table, list, ["ids"])
    assert collator([dataset[0]]) == [{"ids": 1}]
    assert without(table, ["text"]) is table


def test_samples_that_are_no_dictionaries_stay_as_they_are():
    assert Trimmed(list, ["ids"])([(1, 2), "text"]) == [(1, 2), "text"]


def from_text(rows):
    return {"ids": torch.tensor([len(row["text"]) for row in rows])}


def test_a_collator_that_needs_a_column_gets_it(table, caplog):
    dataset, collator = trimmed(table, from_text, ["ids"])
    assert dataset is table
    assert collator([dataset[0]])["ids"].tolist() == [1]
    assert "the data_collator uses 'text'" in caplog.text


def test_a_collator_that_needs_a_column_of_plain_samples_gets_it(caplog):
    rows = [{"ids": [1], "text": "abc"}]
    _, collator = trimmed(rows, from_text, ["ids"])
    assert [collator(rows)["ids"].tolist() for _ in range(2)] == [[3], [3]]
    assert caplog.text.count("the data_collator uses 'text'") == 1


def test_a_name_that_no_sample_has_is_still_an_error():
    def collate(rows):
        return [row["nowhere"] for row in rows]

    with pytest.raises(KeyError, match="nowhere"):
        Trimmed(collate, ["ids"])([{"ids": 1, "text": "a"}])


def test_trying_the_collator_draws_no_random_numbers(table):
    def collate(rows):
        torch.rand(3)
        return from_text(rows)

    before = Randomness.now().torch
    trimmed(table, collate, ["ids"])
    assert torch.equal(Randomness.now().torch, before)


def test_a_collator_that_fails_on_one_sample_is_not_blamed(table):
    def collate(rows):
        return {"ids": rows[1]["ids"]}

    assert trimmed(table, collate, ["ids"])[0].column_names == ["ids"]


def test_data_of_which_nothing_would_be_left_is_refused():
    message = r"none of the columns \(text\) is an argument of Model.forward, which takes ids"
    with pytest.raises(ValueError, match=message):
        trimmed(Dataset.from_dict({"text": ["a"]}), default_data_collator, ["ids"], model_name="Model")
    rows, collator = trimmed([{"text": "a"}], default_data_collator, ["ids"], model_name="Model")
    with pytest.raises(ValueError, match=message):
        collator(rows)


@pytest.mark.parametrize("kind", [list, Dataset.from_list])
def test_columns_of_text_that_a_tokenizer_cannot_pad_are_named(kind):
    words = Tokenizer(WordLevel({"[PAD]": 0, "a": 1}, unk_token="[PAD]"))
    collator = DataCollatorWithPadding(PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]"))
    rows = kind([{"input_ids": [1], "label": "neg", "text": "a"}, {"input_ids": [1, 1], "label": "pos", "text": "a a"}])
    rows, collator = trimmed(rows, collator, ["input_ids", "label"])
    world = SimpleNamespace(rank=0, size=1, device=torch.device("cpu"))
    loader = eval_loader(rows, collator=collator, sampler=None, options=LoaderOptions(batch_size=2), world=world)
    with pytest.raises(ValueError) as found:
        next(iter(loader))
    (note,) = found.value.__notes__
    assert note.startswith("label: is text ('neg'), of which no tensor can be made. Number the classes from 0")


@pytest.mark.parametrize("kind", [Dataset.from_list, list])
def test_text_in_a_column_that_the_model_takes_is_warned_of(kind, capsys):
    name = f"weight_{kind.__name__}"  # else the same was said already
    data, collator = trimmed(kind([{"ids": 1, name: "2.0", "note": "a"}]), default_data_collator, ["ids", name])
    assert list(collator([data[0]])) == ["ids"]
    told = capsys.readouterr().err
    assert f"{name}: the model takes it, but it is text" in told
    assert "note: the model" not in told
