from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdpx.config.faults import ConfigError
from xdpx.datasets.inputs import BaseInput, LingvoEvalAdaptor, LingvoLazyEvalAdaptor, walk, with_hosts


def counting(rows: int, batch: int) -> Any:
    def batches() -> Iterator[dict[str, Any]]:
        for first in range(0, rows, batch):
            numbers = np.arange(first, min(first + batch, rows))
            yield {"row": numbers, "weights": np.ones((len(numbers), 2)), "weight": np.ones(len(numbers))}

    return batches


def make(kind: str, size: int, inner: int, **fields: Any) -> Any:
    options = {"input": counting(size, inner), "eval_window": "full_epoch", **fields}
    if kind == "lazy":
        return LingvoLazyEvalAdaptor.HParams(num_samples=size, **options)
    return LingvoEvalAdaptor.HParams(**options)


def real(batches: list[Any]) -> list[int]:
    return [int(row) for batch in batches for row in batch.row[batch.eval_sample_weights > 0]]


def epoch(data: BaseInput) -> list[Any]:
    return list(walk(data, data.window))


KINDS = ["loaded", "lazy"]


@settings(deadline=None, max_examples=40)
@given(
    size=st.integers(1, 30),
    inner=st.integers(1, 9),
    batch=st.integers(1, 5),
    hosts=st.integers(1, 4),
    kind=st.sampled_from(KINDS),
)
def test_hosts_share_finite_data_and_stop_together(size: int, inner: int, batch: int, hosts: int, kind: str) -> None:
    p = make(kind, size, inner, batch_size=batch)
    seen = [epoch(with_hosts(p, host, hosts).Instantiate()) for host in range(hosts)]
    assert {len(batches) for batches in seen} == {-(-size // (batch * hosts))}
    assert all(len(b.row) == batch for batches in seen for b in batches)
    assert sorted(row for batches in seen for row in real(batches)) == list(range(size))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_fill_the_last_batch_weigh_nothing_anywhere(kind: str) -> None:
    batches = epoch(make(kind, 5, 3, batch_size=2).Instantiate())
    assert [b.eval_sample_weights.tolist() for b in batches] == [[1, 1], [1, 1], [1, 0]]
    assert batches[2].weights.tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize("kind", KINDS)
def test_every_epoch_is_the_same(kind: str) -> None:
    data = make(kind, 5, 3, batch_size=2).Instantiate()
    assert [real(epoch(data)) for _ in range(3)] == [[0, 1, 2, 3, 4]] * 3


def test_both_kinds_give_the_same_batches() -> None:
    for host in range(3):
        loaded, lazy = (with_hosts(make(kind, 13, 4, batch_size=2), host, 3).Instantiate() for kind in KINDS)
        assert real(epoch(loaded)) == real(epoch(lazy))


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_evaluation_goes_on_exactly(kind: str) -> None:
    p = make(kind, 11, 4, batch_size=2)
    data = p.Instantiate()
    data.get_next()
    data.get_next()
    data.peek_padded()
    again = p.Instantiate()
    again.set_state(data.get_state())
    assert real(list(again)) == real(list(data)) == list(range(4, 11))
    with pytest.raises(ValueError, match="of 1 hosts, not of 2"):
        with_hosts(p, 0, 2).Instantiate().set_state(p.Instantiate().get_state())


@pytest.mark.parametrize("kind", KINDS)
def test_it_needs_data_that_are_seen_anew(kind: str) -> None:
    for fields in ({"eval_window": "rolling(2)"}, {"eval_window": None}, {"is_training": True}):
        with pytest.raises(ConfigError, match="Write eval_window='full_epoch'"):
            make(kind, 5, 3, batch_size=2, **fields).Instantiate()
    pax = {"eval_window": None, "reset_for_eval": True, "eval_loop_num_batches": None}
    assert len(epoch(make(kind, 5, 3, batch_size=2, **pax).Instantiate())) == 3


def test_the_weight_of_a_row_may_have_another_name() -> None:
    p = make("lazy", 3, 2, batch_size=2, weight_field="weight")
    assert [b.eval_sample_weights.tolist() for b in epoch(p.Instantiate())] == [[1, 1], [1, 0]]
    with pytest.raises(ConfigError, match="weight_field: is 'mass'; a batch has row, weights"):
        p.set(weight_field="mass").Instantiate().get_next()


def test_a_wrong_number_of_samples_is_told() -> None:
    with pytest.raises(ConfigError, match="is 9, but the data end after 5 rows"):
        epoch(make("lazy", 5, 3, batch_size=2).set(num_samples=9).Instantiate())
    with pytest.raises(ConfigError, match="LingvoEvalAdaptor counts them"):
        make("lazy", 5, 3, batch_size=2).set(num_samples=0).Instantiate()


def test_data_that_do_not_fit_together_are_told() -> None:
    ragged = [{"ids": np.zeros((1, 2))}, {"ids": np.zeros((1, 3))}]
    with pytest.raises(ConfigError, match="Pad all its batches to one width"):
        LingvoEvalAdaptor(input=ragged, batch_size=2, eval_window="full_epoch").get_next()
    with pytest.raises(ConfigError, match="yields no batch"):
        LingvoEvalAdaptor(input=[], batch_size=2, eval_window="full_epoch").get_next()
    with pytest.raises(ConfigError, match="batch_size: is missing"):
        make("loaded", 5, 3).Instantiate()
