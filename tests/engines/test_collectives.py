"""With one process everything is given back as it is. With two: `two_processes.py`."""

from collections import namedtuple

import pytest
import torch

from xdpx.engines.pytorch import collectives

Pair = namedtuple("Pair", ["left", "right"])


@pytest.mark.parametrize("verb", ["gather_rows", "sum_over_ranks", "mean_over_ranks", "broadcast_tree"])
def test_one_process_gets_what_it_gave(verb):
    value = torch.ones(2)
    assert getattr(collectives, verb)(value) is value


def test_objects_of_one_process_are_a_list_of_one():
    assert collectives.gather_objects("a") == ["a"]
    assert collectives.broadcast_object("a") == "a"
    assert (collectives.num_processes(), collectives.rank()) == (1, 0)
    collectives.barrier()


def test_trees_keep_their_kinds():
    tree = {"a": [torch.ones(1), None], "b": Pair(torch.ones(1), "text"), "c": (1,)}
    changed = collectives.map_tensors(lambda each: each + 1, tree)
    assert changed["a"] == [torch.tensor([2.0]), None]
    assert isinstance(changed["b"], Pair)
    assert changed["b"].right == "text"
    assert changed["c"] == (1,)


def test_what_was_taken_apart_can_be_put_together():
    tree = {"a": [torch.ones(2), 5], "b": torch.zeros(())}
    outline, tensors = collectives.flatten(tree)
    assert [tuple(each.shape) for each in tensors] == [(2,), ()]
    together = collectives.unflatten(outline, lambda place: tensors[place.index])
    assert together["a"][0] is tree["a"][0]
    assert together["a"][1] == 5
    assert together["b"] is tree["b"]


def test_what_has_no_rows_cannot_be_gathered(monkeypatch):
    monkeypatch.setattr(collectives, "num_processes", lambda: 2)
    with pytest.raises(TypeError, match="there is a str among the outputs"):
        collectives.gather_rows({"logits": torch.ones(1), "name": "x"})


def test_the_others_go_on_when_the_first_fails(monkeypatch):
    waits = []
    monkeypatch.setattr(collectives, "barrier", lambda: waits.append(1))
    with pytest.raises(RuntimeError, match="no disk"), collectives.one_first(is_first=True):
        raise RuntimeError("no disk")
    with collectives.one_first(is_first=False):
        assert waits == [1, 1]
