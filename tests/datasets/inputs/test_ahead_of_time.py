from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from xdpx.datasets.inputs import BaseInput, IterableAdaptor, MultiInput, PrefetchedInput, build_input, walk

Make = Callable[..., Any]


def labels(data: BaseInput, count: int | None = None) -> list[Any]:
    return [batch.labels.tolist() for batch in islice(data, count)]


@pytest.fixture
def both(numbered: Make) -> Iterator[tuple[BaseInput, Any]]:
    """An input that is read ahead, and its template."""
    p = numbered(23, pack=True, tokens=4, batch_size=3, is_training=True, packing_window=6, prefetch=3)
    data = build_input(p)
    yield data, p
    data.close()


def test_batches_are_those_of_the_other_input(both: tuple[BaseInput, Any]) -> None:
    data, p = both
    assert isinstance(data, PrefetchedInput)
    assert labels(data, 12) == labels(p.Instantiate(), 12)


@pytest.mark.parametrize("peek", [False, True])
def test_the_state_is_that_of_the_consumer(both: tuple[BaseInput, Any], peek: bool) -> None:
    data, p = both
    labels(data, 5)
    if peek:
        data.peek_padded()
    again = p.Instantiate()
    again.set_state(data.get_state())
    assert labels(again, 5) == labels(data, 5)
    assert again.get_state() == data.get_state()


def test_going_elsewhere_throws_away_what_was_made_ahead(both: tuple[BaseInput, Any]) -> None:
    data, p = both
    first = labels(data, 4)
    state = data.get_state()
    labels(data, 3)
    data.reset()
    assert labels(data, 4) == first
    data.set_state(state)
    assert data.get_state() == state
    assert labels(data, 3) == labels(p.Instantiate(), 7)[4:]


def test_an_epoch_ends_and_begins_anew(numbered: Make) -> None:
    data = build_input(numbered(5, batch_size=2, eval_window="full_epoch", prefetch=2))
    seen = [[batch.labels[:, 0].tolist() for batch in walk(data, data.window)] for _ in range(2)]
    assert seen == [[[1, 2], [3, 4], [5, 1]]] * 2
    data.close()


def test_what_making_a_batch_raised_comes_after_the_batches_before_it() -> None:
    def batches() -> Iterator[dict[str, Any]]:
        yield {"row": np.array([1])}
        raise OSError("disk")

    data = PrefetchedInput.around(IterableAdaptor(input=batches, is_training=True), 4)
    assert data.get_next().row.tolist() == [1]
    with pytest.raises(OSError, match="disk"):
        data.get_next()


def test_all_else_is_asked_of_the_other_input(both: tuple[BaseInput, Any]) -> None:
    data, p = both
    assert data.name == "train"
    assert data.spec() == p.Instantiate().spec()
    assert data.ids_to_strings([[3, 4]]) == ["3 4"]
    assert data.tokenizer_digest() is None
    assert data.global_batch_size == 3
    assert data.has_predict_metrics is False  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        data.nothing_of_this_name  # type: ignore[attr-defined]  # noqa: B018


def test_closing_ends_the_thread(numbered: Make) -> None:
    before = threading.active_count()
    data = build_input(numbered(9, batch_size=2, is_training=True, prefetch=2))
    data.get_next()
    assert threading.active_count() == before + 1
    data.close()
    assert threading.active_count() == before


def test_a_child_of_several_is_read_ahead_where_it_says_so(numbered: Make) -> None:
    children = {"one": numbered(9, batch_size=2, is_training=True, prefetch=2)}
    data = MultiInput(inputs=children, is_training=True)
    assert isinstance(data.child("one"), PrefetchedInput)
    state = [data.get_next() and data.get_state() for _ in range(3)][1]
    fourth = data.get_next().one.labels.tolist()
    data.set_state(state)
    assert [data.get_next() for _ in range(2)][1].one.labels.tolist() == fourth
    data.close()


def test_nothing_is_read_ahead_where_nobody_asked(numbered: Make) -> None:
    assert not isinstance(build_input(numbered(9, batch_size=2, is_training=True)), PrefetchedInput)
