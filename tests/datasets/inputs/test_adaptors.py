from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdpx.config.faults import ConfigError
from xdpx.config.hparams import BaseHParams, Configurable
from xdpx.datasets.inputs import (
    BaseInput,
    IterableAdaptor,
    LingvoInputAdaptor,
    LingvoInputAdaptorNewBatchSize,
    RebatchAdaptor,
    with_hosts,
)


def counting(rows: int, batch: int) -> Any:
    """A function that gives rows 0, 1, 2, ... in batches, the last one shorter."""

    def batches() -> Iterator[dict[str, Any]]:
        for first in range(0, rows, batch):
            yield {"row": np.arange(first, min(first + batch, rows))}

    return batches


class Loader(Configurable):
    """A generator class with its own hyper-parameters, of the kind that Pax wraps."""

    class HParams(BaseHParams):
        file_random_seed: int = 0
        batch: int = 2

    def GetPreprocessedInputBatch(self) -> dict[str, Any]:
        self.__dict__.setdefault("rng", np.random.default_rng(self.hparams.file_random_seed))
        return {"row": self.rng.integers(0, 1_000_000, self.hparams.batch)}


def rows(data: BaseInput, count: int | None = None) -> list[int]:
    return [int(row) for batch in islice(data, count) for row in batch.row]


def test_the_names_of_pax_and_ours_are_the_same() -> None:
    assert IterableAdaptor is LingvoInputAdaptor
    assert RebatchAdaptor is LingvoInputAdaptorNewBatchSize


def test_every_row_weighs_one_where_nothing_else_is_said() -> None:
    data = IterableAdaptor(input=counting(3, 2), is_training=True)
    assert [batch.eval_sample_weights.tolist() for batch in data] == [[1, 1], [1]]
    weighed = IterableAdaptor(input=[{"row": [5], "eval_sample_weights": [0.5]}], is_training=True)
    assert weighed.get_next().eval_sample_weights.tolist() == [0.5]


@pytest.mark.parametrize("thing", [counting(4, 2), [{"row": [0, 1]}, {"row": [2, 3]}]])
def test_a_function_and_a_list_are_read_anew_after_a_reset(thing: Any) -> None:
    data = IterableAdaptor(input=thing, eval_window="first(1)")
    assert rows(data) == [0, 1, 2, 3]
    data.reset()
    assert rows(data) == [0, 1, 2, 3]


def test_a_generator_that_can_be_read_once_is_refused_with_what_to_give() -> None:
    with pytest.raises(ConfigError, match=r"input=make_batches, not input=make_batches\(\)"):
        IterableAdaptor(input=counting(4, 2)(), is_training=True).get_next()


def test_what_gives_no_batches_is_refused() -> None:
    with pytest.raises(ConfigError, match="yields no batches"):
        IterableAdaptor(input=3, is_training=True).get_next()
    with pytest.raises(ConfigError, match="input: is missing"):
        IterableAdaptor(is_training=True)
    with pytest.raises(ConfigError, match="A batch is a dict of arrays; this is a list"):
        IterableAdaptor(input=[[1, 2]], is_training=True).get_next()


def test_the_inner_thing_decides_the_batch_size() -> None:
    with pytest.raises(ConfigError, match="use LingvoInputAdaptorNewBatchSize"):
        LingvoInputAdaptor(input=counting(4, 2), batch_size=2, is_training=True)


def test_it_stops_after_a_number_of_batches() -> None:
    assert rows(IterableAdaptor(input=counting(10, 2), num_batches=2, is_training=True)) == [0, 1, 2, 3]


def test_it_begins_anew_where_it_repeats_and_tells_the_epoch() -> None:
    def batches(epoch: int) -> Iterator[dict[str, Any]]:
        yield {"row": [10 * epoch]}
        yield {"row": [10 * epoch + 1]}

    p = IterableAdaptor.HParams(input=batches, repeat=True, is_training=True)
    data = p.Instantiate()
    assert rows(data, 5) == [0, 1, 10, 11, 20]
    again = p.Instantiate()
    again.set_state(data.get_state())
    assert rows(again, 2) == [21, 30]


def test_nothing_that_repeats_ends_instead_of_running_for_ever() -> None:
    assert rows(IterableAdaptor(input=[], repeat=True, is_training=True)) == []


# ---- hosts and seeds


def shards(thing: Any, hosts: int, count: int | None = None, **fields: Any) -> list[list[int]]:
    p = IterableAdaptor.HParams(input=thing, is_training=True, **fields)
    return [rows(with_hosts(p, host, hosts).Instantiate(), count) for host in range(hosts)]


def test_what_knows_nothing_of_hosts_is_shared_batch_by_batch_and_ends_on_all_alike() -> None:
    assert shards(counting(14, 2), 3) == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]


def test_what_takes_its_host_shares_the_data_itself() -> None:
    def batches(host_index: int, num_hosts: int) -> Iterator[dict[str, Any]]:
        for row in range(host_index, 6, num_hosts):
            yield {"row": [row]}

    assert shards(batches, 2) == [[0, 2, 4], [1, 3, 5]]


def test_what_takes_a_seed_gets_another_one_on_each_host() -> None:
    def batches(seed: int) -> Iterator[dict[str, Any]]:
        yield {"row": [seed]}

    assert shards(batches, 3, input_random_seed=40) == [[40], [41], [42]]


def test_a_seed_that_nobody_gave_is_drawn_and_kept_in_the_state() -> None:
    p = LingvoInputAdaptor.HParams(input=Loader.HParams(), is_training=True)
    data = p.Instantiate()
    seen = rows(data, 3)
    state = json.loads(json.dumps(data.get_state()))
    again = p.Instantiate()
    assert rows(p.Instantiate(), 3) != seen
    again.set_state(state)
    assert rows(again, 2) == rows(data, 2)


def test_a_fixed_seed_of_training_data_is_refused_unless_it_is_allowed() -> None:
    p = LingvoInputAdaptor.HParams(input=Loader.HParams(file_random_seed=7), is_training=True)
    with pytest.raises(ConfigError, match="Set its seed to 0"):
        p.Instantiate()
    p.allow_fixed_file_random_seed = True
    assert rows(p.Instantiate(), 3) == rows(p.Instantiate(), 3)


def test_a_fixed_seed_is_fine_where_nothing_is_trained() -> None:
    p = LingvoInputAdaptor.HParams(input=Loader.HParams(file_random_seed=7), eval_window="first(2)")
    assert rows(p.Instantiate(), 2) == rows(p.Instantiate(), 2)


# ---- where it stands


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("peek", [False, True])
def test_a_restored_adaptor_goes_on_exactly(hosts: int, peek: bool) -> None:
    p = IterableAdaptor.HParams(input=counting(40, 2), is_training=True)
    for host in range(hosts):
        data = with_hosts(p, host, hosts).Instantiate()
        rows(data, 3)
        if peek:
            data.peek_padded()
        state = json.loads(json.dumps(data.get_state()))
        again = with_hosts(p, host, hosts).Instantiate()
        again.set_state(state)
        assert rows(again) == rows(data)


def test_the_state_of_the_inner_iterator_is_used_where_it_keeps_one() -> None:
    class Seekable:
        opened = 0

        def __init__(self) -> None:
            type(self).opened += 1
            self.at = 0

        def __iter__(self) -> Seekable:
            return self

        def __next__(self) -> dict[str, Any]:
            assert self.at != 1 or type(self).opened < 2, "read again from the beginning"
            self.at += 1
            return {"row": [self.at]}

        def get_state(self) -> dict[str, Any]:
            return {"at": self.at}

        def set_state(self, state: dict[str, Any]) -> None:
            self.at = state["at"]

    p = IterableAdaptor.HParams(input=Seekable, is_training=True)
    data = p.Instantiate()
    assert rows(data, 3) == [1, 2, 3]
    again = p.Instantiate()
    again.set_state(data.get_state())
    assert rows(again, 2) == [4, 5]


def test_a_state_of_another_number_of_hosts_is_refused() -> None:
    p = IterableAdaptor.HParams(input=counting(8, 2), is_training=True)
    with pytest.raises(ValueError, match="of 1 hosts, this one of 2.*use SeqIOInput"):
        with_hosts(p, 0, 2).Instantiate().set_state(p.Instantiate().get_state())


def test_data_that_became_fewer_are_noticed() -> None:
    data = IterableAdaptor(input=counting(8, 2), is_training=True)
    rows(data, 3)
    with pytest.raises(ValueError, match="3 batches were read before, now there are fewer"):
        IterableAdaptor(input=counting(4, 2), is_training=True).set_state(data.get_state())


# ---- another batch size


def test_large_batches_are_cut_into_small_ones() -> None:
    data = LingvoInputAdaptorNewBatchSize(input=counting(12, 6), batch_size=2, is_training=True)
    assert [batch.row.tolist() for batch in data] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]


def test_a_batch_that_is_no_multiple_is_refused_unless_what_is_left_is_carried_on() -> None:
    p = LingvoInputAdaptorNewBatchSize.HParams(input=counting(12, 4), batch_size=3, is_training=True)
    with pytest.raises(ConfigError, match="batches of 4 rows come in, which is not a multiple"):
        p.Instantiate().get_next()
    p.carry_remainder = True
    assert [batch.row.tolist() for batch in p.Instantiate()] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def test_a_new_batch_size_needs_one() -> None:
    with pytest.raises(ConfigError, match="batch_size: is missing"):
        RebatchAdaptor(input=counting(12, 4), is_training=True)


@given(
    size=st.integers(1, 30), inner=st.integers(1, 7), batch=st.integers(1, 7), at=st.integers(0, 6), peek=st.booleans()
)
def test_cutting_resumes_exactly_inside_a_batch(size: int, inner: int, batch: int, at: int, peek: bool) -> None:
    fields = {"input": counting(size, inner), "batch_size": batch, "carry_remainder": True, "is_training": True}
    data = RebatchAdaptor(**fields)
    seen = rows(data, at)
    if peek:
        data.peek_padded()
    again = RebatchAdaptor(**fields)
    again.set_state(json.loads(json.dumps(data.get_state())))
    rest = rows(again)
    assert rest == rows(data)
    assert seen + rest == list(range(size // batch * batch))
