from __future__ import annotations

from typing import Any

import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.inputs import MultiInput, SyntheticInput


def synthetic(batch_size: int, **fields: Any) -> SyntheticInput.HParams:
    return SyntheticInput.HParams(batch_size=batch_size, seq_len=3, is_training=True, **fields)


def both(**fields: Any) -> MultiInput.HParams:
    return MultiInput.HParams(inputs={"big": synthetic(6), "small": synthetic(4)}, is_training=True, **fields)


def test_all_arrays_share_the_largest_batch_that_divides_all() -> None:
    batch = both().Instantiate().get_next()
    assert batch.big.ids.shape == (2, 3, 3)
    assert batch.small.ids.shape == (2, 2, 3)
    assert batch.big.eval_sample_weights.shape == (2, 3)


def test_it_stands_where_its_children_stand() -> None:
    data, again = both().Instantiate(), both().Instantiate()
    data.get_next()
    data.peek_padded()
    again.set_state(data.get_state())
    assert again.get_state() == {"big": {"rows": 6}, "small": {"rows": 4}}
    assert (again.get_next().big.ids == data.get_next().big.ids).all()
    data.reset()
    assert data.get_state()["big"] == {"rows": 0}


def test_a_state_of_other_children_is_refused() -> None:
    with pytest.raises(ValueError, match="the state is of other; the inputs are big, small"):
        both().Instantiate().set_state({"other": {}})


def test_texts_come_from_the_child_that_is_named() -> None:
    data = both(default_input="small").Instantiate()
    assert data.ids_to_strings([[4, 5]], key="big") == ["4 5"]
    assert data.child(None) is data.children["small"]
    with pytest.raises(KeyError, match="no input 'huge', only big, small"):
        data.child("huge")


def test_several_children_are_not_evaluated_over_an_epoch() -> None:
    children = {"a": synthetic(2), "b": synthetic(2)}
    with pytest.raises(ConfigError, match="Evaluate each by itself"):
        MultiInput(inputs=children, eval_window="full_epoch")
    MultiInput(inputs=children, eval_window="rolling(3)")
    MultiInput(inputs={"a": children["a"]}, eval_window="full_epoch")


def test_no_child_or_an_unknown_default_is_refused() -> None:
    with pytest.raises(ConfigError, match="Give at least one input"):
        MultiInput(is_training=True)
    with pytest.raises(ConfigError, match="default_input is 'c'"):
        MultiInput(inputs={"a": synthetic(2)}, default_input="c", is_training=True)
