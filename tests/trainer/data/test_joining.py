import numpy as np
import pytest
import torch
from transformers.trainer_pt_utils import EvalLoopContainer

from xdpx.trainer.data.joining import Joiner


def original(batches, *, concatenate=True):
    container = EvalLoopContainer(concatenate, padding_index=-100)
    for batch in batches:
        container.add(batch)
    return container.get_arrays()


def assert_same(ours, theirs):
    assert type(ours) is type(theirs)
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(theirs, list | tuple):
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other)
        return
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


def rows(count, *shape):
    return torch.arange(float(count * int(np.prod(shape)))).reshape(count, *shape)


BATCHES = {
    "scalars": [torch.tensor(1.0), torch.tensor(2.0)],
    "vectors": [rows(3), rows(2)],
    "alike": [rows(3, 2), rows(2, 2)],
    "growing": [rows(2, 3), rows(2, 5), rows(1, 4)],
    "with a third dimension": [rows(2, 3, 2), rows(1, 5, 2)],
    "tuples": [(rows(2, 3), rows(2)), (rows(1, 1), rows(1))],
    "dictionaries": [{"a": rows(2), "b": [rows(2, 2)]}, {"a": rows(1), "b": [rows(1, 3)]}],
    "whole numbers": [rows(2, 3).long(), rows(2, 4).long()],
    "bfloat16": [rows(2, 3).bfloat16(), rows(2, 3).bfloat16()],
}


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("concatenate", [True, False])
def test_what_is_joined_is_that_of_the_original(batches, concatenate):
    joiner = Joiner(concatenate=concatenate)
    for batch in batches:
        joiner.add(batch)
    assert_same(joiner.result(), original(batches, concatenate=concatenate))


def test_nothing_joined_is_none():
    joiner = Joiner()
    joiner.add(None)
    assert joiner.result() is None


def test_gradients_are_not_kept():
    joiner = Joiner()
    joiner.add(torch.ones(2, requires_grad=True) * 2)
    assert joiner.result().tolist() == [2, 2]


def test_another_structure_in_a_later_batch_is_refused():
    joiner = Joiner(what="labels")
    joiner.add(rows(2))
    with pytest.raises(ValueError, match=r"labels: batch 1 returned 2 values \(\[0\], \[1\]\).*returned one value"):
        joiner.add((rows(2), rows(2)))


def test_rows_that_differ_beyond_their_length_are_refused():
    joiner = Joiner()
    joiner.add({"logits": rows(2, 3, 4)})
    joiner.add({"logits": rows(2, 3, 5)})
    with pytest.raises(
        ValueError, match=r"predictions\['logits'\]: batches differ in shape, \(2, 3, 4\) and \(2, 3, 5\)"
    ):
        joiner.result()


def test_memory_that_will_not_do_is_announced_at_the_first_batch(caplog):
    joiner = Joiner(expected=1000, memory_bytes=1_000_000, what="predictions")
    joiner.add(rows(8, 100))
    assert "predictions of 1000 batches will take 3.1 MiB of 976.6 KiB" in caplog.text
    joiner.add(rows(8, 100))
    assert len(caplog.records) == 1


def test_memory_that_will_do_is_not_mentioned(caplog):
    joiner = Joiner(expected=10)
    joiner.add(rows(8, 100))
    assert not caplog.records


def test_each_value_is_copied_once_however_many_batches_there_are(monkeypatch):
    copied = []
    empty = np.empty
    monkeypatch.setattr(np, "empty", lambda shape, dtype: copied.append(np.prod(shape)) or empty(shape, dtype))
    joiner = Joiner()
    for _ in range(200):
        joiner.add(rows(8, 10))
    joiner.result()
    assert sum(copied) == 200 * 80


def test_objects_that_are_no_tensors_are_collected():
    joiner = Joiner()
    joiner.add({"texts": "a"})
    joiner.add({"texts": "b"})
    assert joiner.result() == {"texts": ["a", "b"]}


def test_unsigned_numbers_can_say_what_fills_them_up_and_truth_values_are_filled_up_with_false():
    joiner = Joiner()
    for width in (2, 1):
        joiner.add((torch.ones((1, width), dtype=torch.uint8), torch.ones((1, width), dtype=torch.bool)))
    numbers, flags = joiner.result()
    assert numbers.tolist() == [[1, 1], [1, -100]]
    assert flags.tolist() == [[True, True], [True, False]]
