from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from xdpx.config.faults import ConfigError
from xdpx.config.hparams import from_json, to_json
from xdpx.datasets.inputs import (
    BaseInput,
    IterableAdaptor,
    LingvoInputAdaptor,
    MultiInput,
    SyntheticInput,
    with_hosts,
)
from xdpx.utils.nested_map import NestedMap


def batches() -> Any:
    for number in range(4):
        yield {"ids": np.full((2, 3), number)}


def test_the_documents_way_of_looking_at_data_works(capsys: pytest.CaptureFixture[str]) -> None:
    p = LingvoInputAdaptor.HParams(input=batches, is_training=True)
    inp = p.Instantiate()
    b = inp.get_next()
    print(b)  # noqa: T201 - the document's own line
    assert b.ids.shape == (2, 3)
    assert "ids" in capsys.readouterr().out


def test_the_documents_custom_input_works() -> None:
    class MyInput(LingvoInputAdaptor):
        def get_next(self) -> NestedMap:
            batch = super().get_next()
            batch.new_field = batch.ids + 1
            return batch

    inp = MyInput.HParams(input=batches, is_training=True).Instantiate()
    assert inp.get_next().new_field.tolist() == [[1] * 3] * 2
    assert inp.peek_padded().new_field.tolist() == [[2] * 3] * 2
    assert inp.get_state()["items"] == 1
    assert inp.get_next().new_field.tolist() == [[2] * 3] * 2
    assert inp.get_state()["items"] == 2


class Own(BaseInput):
    """An input that says nothing about where it stands."""

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        self.at = 0

    def get_next(self) -> NestedMap:
        if self.at == 5:
            raise StopIteration
        self.at += 1
        return NestedMap(number=np.array([self.at]))

    def reset(self) -> None:
        self.at = 0


def test_an_input_of_ones_own_is_brought_back_by_reading_again() -> None:
    data = Own(is_training=True)
    data.get_next()
    data.get_next()
    state = data.get_state()
    assert state == {"batches": 2}
    other = Own(is_training=True)
    other.get_next()
    other.set_state(state)
    assert other.get_next().number.tolist() == [3]
    assert other.get_state() == {"batches": 3}


def test_a_peek_gives_the_next_batch_and_does_not_count() -> None:
    data = Own(is_training=True)
    assert data.peek_padded().number.tolist() == [1]
    assert data.peek_padded().number.tolist() == [1]
    assert data.get_state() == {"batches": 0}
    assert [int(batch.number[0]) for batch in data] == [1, 2, 3, 4, 5]
    assert data.peek_padded() is None


def test_a_peek_is_forgotten_when_the_input_goes_elsewhere() -> None:
    data = Own(is_training=True)
    data.get_next()
    data.peek_padded()
    data.reset()
    assert data.get_next().number.tolist() == [1]
    data.peek_padded()
    data.set_state({"batches": 4})
    assert data.get_next().number.tolist() == [5]


def test_rows_that_make_a_batch_divide_weigh_nothing() -> None:
    data = SyntheticInput(batch_size=3, batch_padding_size=2, seq_len=4, is_training=True)
    batch = data.get_next_padded()
    assert batch.eval_sample_weights.tolist() == [1, 1, 1, 0, 0]
    assert batch.weights.sum(axis=1).tolist() == [4, 4, 4, 0, 0]
    assert batch.labels[3].tolist() == batch.labels[0].tolist()


def test_a_runner_fills_hosts_in_where_nobody_set_them() -> None:
    p = Own.HParams(batch_size=4, is_training=True)
    filled = with_hosts(p, 2, 3)
    assert (filled.infeed_host_index, filled.num_infeed_hosts, p.num_infeed_hosts) == (2, 3, 0)
    assert filled.Instantiate().global_batch_size == 12
    by_hand = p.clone().set(num_infeed_hosts=4, infeed_host_index=1)
    assert with_hosts(by_hand, 0, 1).infeed_host_index == 1


def test_a_runner_fills_hosts_in_for_every_child() -> None:
    p = MultiInput.HParams(inputs={"a": Own.HParams(is_training=True)}, is_training=True)
    assert with_hosts(p, 1, 2).inputs["a"].infeed_host_index == 1
    assert p.inputs["a"].num_infeed_hosts == 0


def test_a_name_is_given_where_there_is_none() -> None:
    assert Own(is_training=True).name == "train"
    assert Own().name == "input"
    assert Own(name="dev").name == "dev"


def test_a_misspelt_field_offers_the_nearest() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'batch_size'"):
        Own.HParams().batch_sise = 3


def test_hparams_go_to_json_and_back() -> None:
    p = SyntheticInput.HParams(batch_size=4, eval_window="first(2)")
    assert from_json(to_json(p)) == p


def test_shapes_of_an_unknown_input_come_from_a_look_at_it() -> None:
    data = IterableAdaptor(input=batches, is_training=True)
    assert data.spec().ids.shape == (2, 3)
    assert data.get_next().ids[0, 0] == 0
    with pytest.raises(ValueError, match="no batch"):
        IterableAdaptor(input=[], is_training=True).spec()


class Given(BaseInput):
    """An input that gives what its test says."""

    gives: Any = None

    def get_next(self) -> Any:
        return self.gives


def test_what_is_no_batch_of_numbers_is_refused_and_a_plain_dict_is_one() -> None:
    data = Given(is_training=True)
    with pytest.raises(ConfigError, match=r"train.get_next: gave None, which is not a batch. Return a NestedMap"):
        data.get_next()
    data.gives = {"a": np.zeros(2), "text": np.array(["x", "y"]), "rows": [1, 2], "none": None}
    assert isinstance(data.get_next(), NestedMap)
    with pytest.raises(ConfigError) as refused:
        data.spec()
    assert sorted(fault.key for fault in refused.value.faults) == ["train.none", "train.rows", "train.text"]


def test_padding_rows_have_no_weight_where_the_batch_has_none() -> None:
    data = Given(is_training=True, batch_padding_size=1)
    data.gives = NestedMap(a=np.zeros((2, 3)))
    assert data.get_next_padded().eval_sample_weights.tolist() == [1, 1, 0]


def test_an_input_without_batches_says_what_to_override() -> None:
    with pytest.raises(NotImplementedError, match="override get_next"):
        BaseInput(is_training=True).get_next()


def test_a_state_without_its_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"batches=None; it holds other.*restore the checkpoint"):
        Own(is_training=True).set_state({"other": 3})


def test_all_faults_of_the_fields_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        Own(name="a b", batch_size=0, prefetch=-1, is_training=True)
    assert [fault.key for fault in caught.value.faults] == ["a b.name", "a b.batch_size", "a b.prefetch"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"x": np.ones((4, 2)), "y": np.ones(1)}, "train.y: has 1 row, but 'x' has 4"),
        ({"x": torch.ones(4)}, "train.x: is a Tensor. Give arrays of numbers"),
    ],
)
def test_a_spec_is_refused_for_unlike_rows_and_for_what_is_no_array(given: dict[str, Any], told: str) -> None:
    data = Given(is_training=True)
    data.gives = given
    with pytest.raises(ConfigError, match=re.escape(told)):
        data.spec()
