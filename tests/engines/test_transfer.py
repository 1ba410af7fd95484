import sys
from typing import NamedTuple

import numpy as np
import pytest
import torch
from transformers import BatchEncoding
from transformers.modeling_outputs import BaseModelOutput

from xdpx.engines.pytorch.transfer import to_device

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


def test_arrays_of_numbers_become_tensors_and_texts_and_objects_stay_on_the_host():
    batch = {
        "net_input": {"ids": np.ones((2, 3), np.int64), "pair": [np.ones(2, bool), np.float32(1.5)]},
        "texts": np.array(["a", "b"]), "rows": np.array([{}, None], dtype=object), "ntokens": 6,
    }  # fmt: skip
    moved = to_device(batch, CPU)
    assert moved["net_input"]["ids"].dtype == torch.int64
    assert moved["net_input"]["pair"][0].dtype == torch.bool
    assert (moved["texts"] is batch["texts"], moved["rows"] is batch["rows"], moved["ntokens"]) == (True, True, 6)
    assert to_device(batch, CPU, arrays=False)["net_input"]["ids"] is batch["net_input"]["ids"]


def test_an_array_that_may_not_be_written_is_copied():
    kept = np.zeros(3)
    kept.flags.writeable = False
    moved = to_device({"a": kept}, CPU)["a"]
    moved += 1
    assert kept.sum() == 0


def test_a_batch_costs_few_calls_of_python():
    batch = {"net_input": {name: np.ones((2, 3)) for name in "abc"}, "target": np.ones(2), "ntokens": 6}
    calls = []
    sys.setprofile(lambda frame, event, _: calls.append(event) if event == "call" else None)
    try:
        to_device(batch, CPU)
    finally:
        sys.setprofile(None)
    assert len(calls) <= 7  # one for each mapping, array and number
