from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import default_data_collator as theirs

from xdpx.trainer.data.collation import default_collator, default_data_collator

ROWS = {
    "class numbers": [{"label": 1, "ids": [1, 2]}, {"label": 0, "ids": [3, 4]}],
    "real labels": [{"label": 1.5}, {"label": 0.5}],
    "boolean labels": [{"label": True}, {"label": False}],
    "numpy labels": [{"label": np.int64(3)}, {"label": np.int64(4)}],
    "numpy floats": [{"label": np.float32(3)}, {"label": np.float32(4)}],
    "tensor labels": [{"label": torch.tensor(2)}, {"label": torch.tensor(1)}],
    "lists of labels": [{"label_ids": [1, 2]}, {"label_ids": [3, 4]}],
    "lists of real labels": [{"label_ids": [1.0, 2.0]}, {"label_ids": [3.0, 4.0]}],
    "tensors of labels": [{"label_ids": torch.tensor([1, 2])}, {"label_ids": torch.tensor([3, 4])}],
    "both kinds of labels": [{"label": 1, "label_ids": [1]}, {"label": 2, "label_ids": [2]}],
    "no label in the first": [{"label": None, "label_ids": [1]}, {"label": None, "label_ids": [2]}],
    "texts and nothing": [{"text": "a", "none": None, "x": 1.0}, {"text": "b", "none": None, "x": 2.0}],
    "arrays": [{"x": np.ones((2, 2))}, {"x": np.zeros((2, 2))}],
    "tensors": [{"x": torch.ones(2)}, {"x": torch.zeros(2)}],
    "objects": [SimpleNamespace(x=1, label=2), SimpleNamespace(x=2, label=0)],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
def test_a_batch_is_that_of_the_original(rows):
    expected, batch = theirs(rows), default_data_collator(rows)
    assert list(batch) == list(expected)
    for name, value in expected.items():
        assert batch[name].dtype == value.dtype
        assert torch.equal(batch[name], value)


def test_a_batch_may_be_of_arrays():
    batch = default_data_collator([{"x": [1, 2], "label": 0}], return_tensors="np")
    assert isinstance(batch["x"], np.ndarray)
    assert batch["labels"].tolist() == [0]


def test_labels_with_several_values_each_are_stacked():
    batch = default_data_collator([{"label": torch.tensor([0.0, 1.0])}, {"label": torch.tensor([1.0, 1.0])}])
    assert batch["labels"].tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize(("values", "expected"), [([1, 2.5, 0.75], torch.float), ([1, 2.0], torch.long)])
def test_fractions_of_labels_are_kept_if_the_first_label_is_whole(values, expected):
    labels = default_data_collator([{"label": value} for value in values])["labels"]
    assert labels.dtype == expected
    assert labels.tolist() == values
    assert default_data_collator([{"label_ids": [1, 0.5]}])["labels"].tolist() == [[1, 0.5]]


def test_a_missing_number_among_class_numbers_is_refused():
    with pytest.raises(ValueError, match="'label': values of type float, int do not make a tensor"):
        default_data_collator([{"label": 1}, {"label": float("nan")}])


@pytest.mark.parametrize("convert", [list, torch.tensor, np.array])
def test_rows_of_unlike_length_are_refused_with_what_to_do(convert):
    with pytest.raises(ValueError, match=r"'ids': samples of a batch have lengths 1, 2 .*processing_class"):
        default_data_collator([{"ids": convert([1, 2])}, {"ids": convert([1])}])


def test_labels_of_unlike_length_are_refused():
    with pytest.raises(ValueError, match="'label_ids': samples of a batch have lengths 1, 2"):
        default_data_collator([{"label_ids": [1, 2]}, {"label_ids": [1]}])


def test_a_missing_value_is_named_with_its_sample():
    with pytest.raises(ValueError, match="'x': the first sample of a batch has it, sample 1 has only y"):
        default_data_collator([{"x": 1}, {"y": 1}])


def test_what_makes_no_tensor_is_named():
    with pytest.raises(ValueError, match="'x': values of type dict do not make a tensor"):
        default_data_collator([{"x": {}}, {"x": {}}])


def test_other_kinds_of_tensors_are_refused():
    with pytest.raises(ValueError, match="return_tensors: is 'tf'"):
        default_data_collator([{"x": 1}], return_tensors="tf")


def test_without_a_tokenizer_values_are_stacked():
    assert default_collator(None) is default_data_collator


def test_samples_with_two_kinds_of_labels_are_told_of(capsys):
    batch = default_data_collator([{"label": 0, "labels": 1}])
    assert batch["labels"].tolist() == [1]
    assert "samples have label and labels: labels is used" in capsys.readouterr().err


def test_labels_that_are_text_are_to_be_numbered(capsys):
    with pytest.raises(ValueError, match=r"'label': is text \('neg'\).*Number the classes from 0"):
        default_data_collator([{"label": "neg"}, {"label": "pos"}])
    assert list(default_data_collator([{"labels": "neg", "ids": [1]}])) == ["ids"]
    assert "labels: are text, which is left out" in capsys.readouterr().err


@pytest.mark.parametrize("labels", [(None, 1), (1, None)])
def test_labels_that_only_some_samples_have_are_refused_whichever_comes_first(labels):
    with pytest.raises(ValueError, match="'labels': is None in sample [01] of a batch, but not in all. Use -100"):
        default_data_collator([{"labels": label, "ids": [1]} for label in labels])


@pytest.mark.parametrize("values", [(None, 2.0), (2.0, None), ("n/a", 2.0), (2.0, "n/a")])
def test_numbers_that_only_some_samples_have_are_refused_whichever_comes_first(values):
    with pytest.raises(ValueError, match="'weight'"):
        default_data_collator([{"weight": value, "ids": [1]} for value in values])
    assert list(default_data_collator([{"note": note, "ids": [1]} for note in (None, "text")])) == ["ids"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_column_that_only_some_samples_have_is_refused_whichever_comes_first(order):
    rows = [{"ids": [1]}, {"ids": [1], "weight": 2.0}]
    with pytest.raises(ValueError, match="'weight'.*Give all samples the same columns"):
        default_data_collator(rows[::order])
