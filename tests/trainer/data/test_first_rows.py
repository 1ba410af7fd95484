from collections import UserDict
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from xdpx.trainer.data.first_rows import digest, some_rows, warn_of_unlike_orders
from xdpx.trainer.data.streams import shufflings


@dataclass
class Row:
    text: str
    label: int


def rows():
    odd = UserDict(
        text="ü\udc80", ids=torch.arange(3), half=torch.ones(2, dtype=torch.bfloat16), one=torch.tensor(True)
    )
    pieces = np.empty(2, object)
    pieces[:] = ["a", None]
    return [odd, (1, 2.5, None), {"a": [np.int64(1)], "b": pieces}, Row("x", 1), b"x", torch.zeros(0), object()]


def test_rows_of_the_same_contents_have_the_same_digest_in_any_process():
    assert digest(rows()) == digest(rows()) == 2413172257
    assert all(digest([row]) != digest([]) for row in rows())
    assert digest([]) == 0


@pytest.mark.parametrize("other", [[2, 1], [1], [1, "2"], [1, 2.0], [1, torch.tensor(2)], [1, [2]], [1, Row("x", 2)]])
def test_other_rows_or_another_order_have_another_digest(other):
    assert digest(other) != digest([1, 2])


def test_rows_are_shown_by_data_that_compute_nothing():
    from datasets import Dataset
    from torch.utils.data import Subset, TensorDataset

    def unread(_):
        raise AssertionError

    of_hub = Dataset.from_dict({"x": [5, 6, 7]}).with_transform(unread)
    assert some_rows(["a", "b", "c", "d"]) == ["a", "c", "d"]
    assert some_rows(of_hub) == [[{"x": 5}], [{"x": 6}], [{"x": 7}]]
    assert some_rows(Subset(["a", "b"], [1, 0])) == [[1, 0], "a", "b"]
    assert digest(some_rows(TensorDataset(torch.arange(3)))) != digest(
        some_rows(TensorDataset(torch.arange(3).flip(0)))
    )
    assert some_rows([]) == some_rows(Row("x", 1)) == []


def test_a_row_that_refers_to_itself_has_a_digest():
    row = []
    row.append(row)
    assert digest([row]) > 0


def test_process_0_alone_says_which_process_reads_something_else(capsys, monkeypatch):
    warn_of_unlike_orders([5, 5, 5], "train_dataset")
    monkeypatch.setenv("RANK", "1")
    warn_of_unlike_orders([5, 7, 5], "train_dataset")
    assert "train_dataset" not in capsys.readouterr().err
    monkeypatch.setenv("RANK", "0")
    warn_of_unlike_orders([5, 5, 7], "train_dataset")
    assert "train_dataset: process 2 reads other rows of the stream than process 0" in capsys.readouterr().err


def test_a_stream_of_datasets_shows_how_its_shards_are_shuffled():
    from datasets import Dataset

    plain = Dataset.from_dict({"x": list(range(24))}).to_iterable_dataset(num_shards=4)
    of_rank = [plain.shuffle(seed=3, buffer_size=4).shard(2, rank) for rank in range(2)]
    assert shufflings(of_rank[0]) == shufflings(of_rank[1]) != []
    assert shufflings(plain.shuffle().shard(2, 0)) != shufflings(plain.shuffle().shard(2, 1))
    assert shufflings(plain) == shufflings([]) == []
