from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.inputs.conftest import ragged as rows_of
from xdpx.datasets.inputs import LanguageModelFeatures, PrefixLMFeatures, SequenceModelFeatures
from xdpx.datasets.inputs.converters import FeatureConverter
from xdpx.datasets.inputs.packing import one_per_row
from xdpx.utils.nested_map import NestedMap

LENGTHS = {"inputs": 6, "targets": 6}


def converted(converter: FeatureConverter, inputs: list[list[int]], targets: list[list[int]]) -> NestedMap:
    features = {"inputs": rows_of(inputs), "targets": rows_of(targets)}
    limits = converter.limits(LENGTHS)
    if converter.hparams.pack:
        where = converter.pack({name: column.lengths for name, column in features.items()}, limits)
    else:
        where = one_per_row(len(inputs), len(limits))
    return converter.convert(features, where, limits)


def test_two_examples_packed_in_one_row_are_as_in_pax() -> None:
    batch = converted(LanguageModelFeatures(pack=True), [[7, 8, 5], [8, 4, 9, 3]], [[3, 9], [4]])
    assert batch.ids.tolist() == [[0, 7, 8, 5, 3, 0, 8, 4, 9, 3, 0, 0]]
    assert batch.labels.tolist() == [[7, 8, 5, 3, 9, 8, 4, 9, 3, 4, 0, 0]]
    assert batch.weights.tolist() == [[1] * 10 + [0, 0]]
    assert batch.segment_ids.tolist() == [[1] * 5 + [2] * 5 + [0, 0]]
    assert batch.segment_pos.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 0]]


def test_a_sequence_model_reads_as_in_pax() -> None:
    batch = converted(SequenceModelFeatures(), [[7, 8, 5]], [[3, 9]])
    assert batch.src.ids.tolist() == [[7, 8, 5, 0, 0, 0]]
    assert batch.tgt.ids.tolist() == [[0, 3, 9, 0, 0, 0]]
    assert batch.tgt.labels.tolist() == [[3, 9, 0, 0, 0, 0]]
    assert batch.tgt.weights.tolist() == [[1, 1, 0, 0, 0, 0]]
    assert batch.src.paddings.tolist() == [[0, 0, 0, 1, 1, 1]]


def test_a_packed_sequence_model_needs_room_on_both_sides() -> None:
    converter = SequenceModelFeatures(pack=True)
    batch = converted(converter, [[1, 2, 3], [4, 5], [6]], [[7], [8] * 6, [9, 9]])
    assert batch.src.ids.tolist() == [[1, 2, 3, 6, 0, 0], [4, 5, 0, 0, 0, 0]]
    assert batch.tgt.labels.tolist() == [[7, 9, 9, 0, 0, 0], [8] * 6]
    assert batch.tgt.ids.tolist() == [[0, 0, 9, 0, 0, 0], [0, 8, 8, 8, 8, 8]]
    assert batch.src.segment_ids[0].tolist() == [1, 1, 1, 2, 0, 0]


def test_a_prefix_model_loses_on_targets_alone() -> None:
    batch = converted(PrefixLMFeatures(), [[7, 8, 5]], [[3, 9]])
    assert batch.weights[0].tolist() == [0, 0, 0, 1, 1] + [0] * 7
    assert batch.inputs_indicator[0].tolist() == [1, 1, 1, 1] + [0] * 8


def test_a_packed_row_without_a_first_token_predicts_within_each_example() -> None:
    converter = LanguageModelFeatures(pack=True, reverse_bos_padding=True)
    batch = converted(converter, [[7, 8], [4]], [[3, 9], [5]])
    assert batch.ids.tolist() == [[7, 8, 3, 9, 4, 5, 0, 0, 0, 0, 0, 0]]
    assert batch.labels.tolist() == [[8, 3, 9, 0, 5, 0, 0, 0, 0, 0, 0, 1]]
    assert batch.weights.tolist() == [[1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("pack", [False, True])
def test_the_prompt_that_is_marked_never_has_a_target(reverse: bool, pack: bool) -> None:
    prompts, answers = [[7, 8, 5], [4]], [[13, 19], [11, 12]]
    batch = converted(PrefixLMFeatures(reverse_bos_padding=reverse, pack=pack), prompts, answers)
    marked = batch.ids[batch.inputs_indicator == 1].tolist()
    assert marked == ([7, 8, 5, 4] if reverse else [0, 7, 8, 5, 0, 4])
    in_loss = batch.labels[batch.weights == 1].tolist()
    assert in_loss == [13, 19, 11, 12]


def test_a_task_without_a_prompt_has_no_indicator() -> None:
    converter = LanguageModelFeatures(with_inputs=False, bos_id=2)
    targets = rows_of([[3, 9, 4]])
    batch = converter.convert({"targets": targets}, one_per_row(1, 1), converter.limits({"targets": 4}))
    assert batch.ids.tolist() == [[2, 3, 9, 4]]
    assert batch.inputs_indicator.tolist() == [[0, 0, 0, 0]]


token_rows = st.lists(st.lists(st.integers(2, 50), min_size=1, max_size=6), min_size=1, max_size=12)


@given(token_rows, st.booleans())
def test_every_token_is_predicted_once_from_the_one_before_it(rows: list[list[int]], pack: bool) -> None:
    batch = converted(LanguageModelFeatures(pack=pack), [[] for _ in rows], rows)
    labels, ids, first = batch.labels, batch.ids, batch.segment_pos == 0
    inside = batch.weights == 1
    assert sorted(labels[inside].tolist()) == sorted(token for row in rows for token in row)
    assert np.all(ids[inside & first] == 0)
    later = inside & ~first
    assert np.array_equal(ids[later], labels[:, :-1][later[:, 1:]])
    assert np.array_equal(inside, batch.paddings == 0)


@pytest.mark.parametrize("make", [LanguageModelFeatures, PrefixLMFeatures, SequenceModelFeatures])
@pytest.mark.parametrize("pack", [False, True])
def test_shapes_are_known_without_data(make: Callable[..., Any], pack: bool) -> None:
    converter = make(pack=pack)
    batch = converted(converter, [[7, 8, 5]], [[3, 9]])
    spec = converter.spec(1, converter.limits(LENGTHS))
    assert spec.Transform(tuple) == batch.Transform(lambda array: (array.shape, array.dtype))
