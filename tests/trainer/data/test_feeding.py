import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from xdpx.trainer.data.feeding import find_batch_size, rows_of, was_scored


@pytest.mark.parametrize(
    ("tree", "size"),
    [
        ({"a": torch.tensor(1), "b": torch.ones(3, 2)}, 3),
        ([{"a": "text"}, (np.ones((4, 1)),)], 4),
        (BatchEncoding({"ids": torch.ones(5, 2)}), 5),
        ({"a": torch.tensor(1)}, None),
        ("text", None),
        ([], None),
    ],
)
def test_the_batch_size_is_the_length_of_the_first_tensor_that_has_one(tree, size):
    assert find_batch_size(tree) == size


def test_a_set_was_scored_if_its_scores_were_logged():
    history = [{"loss": 1.0, "step": 1}, {"eval_a_loss": 1.0, "step": 1}]
    assert [was_scored(history, name) for name in ("eval", "a", "b")] == [True, True, False]
    assert not was_scored(history[:1], "eval")


def test_a_list_of_samples_without_tensors_has_as_many_rows_as_samples():
    assert rows_of([{"prompt": "a"}, {"prompt": "b"}]) == 2
    assert rows_of({"prompt": ["a", "b"]}) is None
