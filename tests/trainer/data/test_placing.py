from typing import NamedTuple

import numpy as np
import pytest
import torch
from transformers import BatchEncoding
from transformers.modeling_outputs import BaseModelOutput

from xdpx.trainer.data.placing import find_batch_size, to_device

META, CPU = torch.device("meta"), torch.device("cpu")


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


def test_all_tensors_of_a_tree_are_moved_and_nothing_else():
    tree = {"a": torch.ones(2), "b": [torch.ones(1), (torch.ones(1), "text")], "c": None, "d": 3}
    moved = to_device(tree, META)
    assert moved["a"].device == moved["b"][0].device == moved["b"][1][0].device == META
    assert (moved["b"][1][1], moved["c"], moved["d"]) == ("text", None, 3)
    assert tree["a"].device == CPU


def test_what_is_there_already_is_the_same_tensor():
    tree = {"a": torch.ones(2)}
    assert to_device(tree, CPU)["a"] is tree["a"]


@pytest.mark.parametrize(
    "batch",
    [
        BatchEncoding({"a": torch.ones(2)}),
        BaseModelOutput(last_hidden_state=torch.ones(2)),
        Pair(torch.ones(1), torch.ones(1)),
    ],
)
def test_batches_keep_their_kind(batch):
    moved = to_device(batch, META)
    assert type(moved) is type(batch)
    values = moved.values() if hasattr(moved, "values") else moved
    assert all(value.device == META for value in values)


def test_an_object_moves_itself_even_if_it_can_only_wait():
    class Own:
        def to(self, device):
            self.device = device
            return self

    assert to_device(Own(), META).device == META


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
