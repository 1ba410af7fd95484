import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from xdpx.trainer.data.feeding import find_batch_size


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
