from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdpx.processors.samples import ColumnKind, Ragged, Samples, concatenate

ROWS = st.lists(st.lists(st.integers(-5, 99), max_size=6), max_size=8)
SCHEMA = {"tokens": "ragged int32", "length": "int32", "weight": "float32"}


def ragged(rows: list[list[int]]) -> Ragged:
    return Samples.from_dicts([{"x": row} for row in rows], {"x": "ragged int32"}).ragged("x")


def listed(column: Ragged) -> list[list[int]]:
    return [column.row(index).tolist() for index in range(len(column))]


@given(ROWS, st.data())
def test_take_gives_the_same_rows_as_python_lists_would(rows: list[list[int]], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else []
    assert listed(ragged(rows).take(np.array(chosen, np.int64))) == [rows[index] for index in chosen]


@given(ROWS, st.integers(0, 4))
def test_cut_keeps_the_beginning_of_each_row(rows: list[list[int]], limit: int) -> None:
    assert listed(ragged(rows).cut(limit)) == [row[:limit] for row in rows]


@given(ROWS)
def test_places_lay_rows_down_where_asked(rows: list[list[int]]) -> None:
    column = ragged(rows)
    board = np.full((len(rows), 7), -9)
    board.ravel()[column.places(np.arange(len(rows)) * 7 + 1)] = column.values
    assert [row[1 : 1 + len(there)].tolist() for row, there in zip(board, rows, strict=True)] == rows
    assert (board[:, 0] == -9).all()


def test_samples_keep_their_ids_through_every_take() -> None:
    samples = Samples({"length": np.arange(5)}, first_id=1 << 40)
    twice = samples.take(np.array([4, 1, 2])).take(np.array([2, 0]))
    assert twice.ids.tolist() == [(1 << 40) + 2, (1 << 40) + 4]
    assert twice.numbers("length").tolist() == [2, 4]


def test_a_sample_comes_back_as_it_went_in() -> None:
    rows = [{"tokens": [1, 2], "length": 2, "weight": 0.5}, {"tokens": [], "length": 0, "weight": 2.0}]
    samples = Samples.from_dicts(rows, SCHEMA)
    assert [samples.sample(0), samples.sample(1)] == rows


def test_joined_samples_are_those_of_both() -> None:
    first = Samples.from_dicts([{"tokens": [1], "length": 1, "weight": 1.0}], SCHEMA)
    second = Samples.from_dicts([{"tokens": [2, 3], "length": 2, "weight": 0.0}], SCHEMA)
    both = concatenate([first, second])
    assert [both.sample(0), both.sample(1)] == [first.sample(0), second.sample(0)]


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"differ in length: \{'a': 2, 'b': 3\}"):
        Samples({"a": np.zeros(2), "b": np.zeros(3)})


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    samples = Samples.from_dicts([{"tokens": [1], "length": 1, "weight": 1.0}], SCHEMA)
    with pytest.raises(KeyError, match="no column 'target'.*tokens, length, weight"):
        samples.numbers("target")
    with pytest.raises(KeyError, match="holds a row per sample"):
        samples.numbers("tokens")
    with pytest.raises(KeyError, match="one number per sample"):
        samples.ragged("length")


@pytest.mark.parametrize("kind", ["ragged object", "text", "raggedint32", ""])
def test_an_unknown_kind_of_column_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="is not a kind of column"):
        ColumnKind.parse(kind)


def test_no_samples_are_still_samples() -> None:
    empty = Samples.from_dicts([], SCHEMA)
    assert len(empty) == 0
    assert len(empty.take(np.array([], np.int64)).ragged("tokens")) == 0


def test_rows_that_are_too_short_are_left_out_and_the_others_are_named() -> None:
    rows = Ragged(np.arange(6), np.array([0, 3, 3, 4, 6]))
    kept, indices = rows.not_shorter_than(2)
    assert [kept.row(index).tolist() for index in range(len(kept))] == [[0, 1, 2], [4, 5]]
    assert indices.tolist() == [0, 3]
    assert rows.not_shorter_than(0)[0] is rows  # nothing is copied
