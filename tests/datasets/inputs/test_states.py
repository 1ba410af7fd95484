import json
from typing import Any

import numpy as np
import pytest

from xdpx.datasets.inputs import BaseInput, IterableAdaptor, SyntheticInput
from xdpx.datasets.inputs.ahead_of_time import PrefetchedInput, build_input
from xdpx.datasets.inputs.opening import own_state, return_to
from xdpx.datasets.inputs.states import from_json, to_json
from xdpx.utils.nested_map import NestedMap


def same(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    if isinstance(first, np.ndarray):
        return bool(first.dtype == second.dtype and np.array_equal(first, second))
    return bool(type(first) is type(second) and first == second)


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_the_state_of_every_generator_of_numpy_survives_json(kind: Any) -> None:
    dice = np.random.Generator(kind(3))
    dice.random(5)
    state = dice.bit_generator.state
    back = from_json(json.loads(json.dumps(to_json(state))))
    wanted = dice.random(4).tolist()
    dice.bit_generator.state = back
    assert dice.random(4).tolist() == wanted


def test_bytes_arrays_and_tuples_come_back_as_they_were() -> None:
    rows = np.arange(3, dtype=np.int16)
    state = {"raw": b"\x00\xff", "rows": rows, "pair": (1, "a"), "none": None, "list": [1.5, True]}
    assert same(from_json(json.loads(json.dumps(to_json(state)))), state)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"a": [0, object()]}, r"a\[1\] is a object"),
        ({"a": {1: 2}}, "a is a dict whose keys are not all texts"),
        (np.array([None]), "the state is a ndarray"),
    ],
)
def test_what_json_cannot_hold_is_named_by_its_place(state: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        to_json(state)


class TorchStyle:
    """An iterator with the state methods of torch's loaders."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> dict[str, Any]:
        self.at += 1
        return {"ids": np.full((1, 2), self.at)}

    def state_dict(self) -> dict[str, Any]:
        return {"at": np.int64(self.at)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = int(state["at"])


def test_an_iterator_with_the_state_methods_of_torch_goes_on_by_its_state() -> None:
    data = IterableAdaptor(input=TorchStyle, is_training=True)
    assert data.replay == ""
    data.get_next(), data.get_next()
    state = json.loads(json.dumps(data.get_state()))
    again = IterableAdaptor(input=TorchStyle, is_training=True)
    again.set_state(state)
    assert again.get_next().ids.tolist() == [[3, 3]]
    with pytest.raises(ValueError, match="list_iterator does not"):
        return_to(iter([1]), own_state(TorchStyle()))


class Own(BaseInput):
    """Random rows, without a state."""

    def get_next(self) -> NestedMap:
        return NestedMap(ids=np.zeros((1, 2), np.int32))


def test_an_input_says_why_it_must_read_again() -> None:
    assert Own(is_training=True).replay == "Own has no set_state of its own"
    assert PrefetchedInput.around(Own(is_training=True), 2).replay == "Own has no set_state of its own"
    assert SyntheticInput(batch_size=1, seq_len=4, is_training=True).replay == ""
    assert "list_iterator has no state" in IterableAdaptor(input=[{"ids": np.zeros((1, 2))}], is_training=True).replay


def test_a_state_that_nothing_returns_to_is_told() -> None:
    class Half(Own):
        def get_state(self) -> dict[str, Any]:
            return {"rng": 1}

    with pytest.raises(ValueError, match="Half overrides get_state, but not set_state"):
        Half(is_training=True).set_state({"rng": 1})


def test_data_that_became_shorter_are_told_instead_of_ending_the_job() -> None:
    class Short(Own):
        def get_next(self) -> NestedMap:
            raise StopIteration

    with pytest.raises(ValueError, match=r"3 batches were read before, now there are 0.*no reset"):
        Short(is_training=True).set_state({"batches": 3})


class Reservoir(BaseInput):
    """Draws from a buffer that it fills again in place, and returns its own lists and arrays as its state."""

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        self._state: dict[str, Any] = {"buffer": [0, 1, 2], "drawn": np.zeros(1, np.int64), "dice": ({"next": 3},)}

    def get_next(self) -> NestedMap:
        (dice,), buffer = self._state["dice"], self._state["buffer"]
        drawn, buffer[dice["next"] % 3] = buffer[dice["next"] % 3], dice["next"]
        dice["next"] += 1
        self._state["drawn"] += 1
        return NestedMap(row=np.full(1, drawn))

    def get_state(self) -> dict[str, Any]:
        return self._state

    def set_state(self, state: Any) -> None:
        self._state = state


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_state_made_of_what_the_input_goes_on_changing_is_the_one_that_was_asked_for(prefetch: int) -> None:
    template = Reservoir.HParams(is_training=True, prefetch=prefetch)
    data, again = build_input(template), build_input(template)
    assert [data.get_next().row.tolist() for _ in range(2)] == [[0], [1]]
    data.peek_padded()
    state = data.get_state()
    again.set_state(from_json(to_json(state)))
    following = [data.get_next().row.tolist() for _ in range(3)]
    assert [again.get_next().row.tolist() for _ in range(3)] == following == [[2], [3], [4]]
    assert (state["buffer"], state["drawn"].tolist()) == ([3, 4, 2], [2])
    data.close()
    again.close()
