from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.processors.samples import Ragged, Samples


def samples_of(processor: Any, logits: list[list[float]] | None) -> Samples:
    rows = Ragged(np.array([5, 6, 8, 9], np.int32), np.array([0, 3, 4]))
    fields = dict.fromkeys(processor.text_fields, rows)
    if logits is not None:
        ends = np.cumsum([0, *map(len, logits)])
        fields["logits"] = Ragged(np.array([one for row in logits for one in row], np.float32), ends)
    columns, _ = processor.numerize_many(fields, np.array([1, 0]))
    return Samples({name: columns[name] for name in processor.columns(labelled=True)})


@pytest.mark.parametrize("name", ["single", "pair", "bert_single", "bert_pair"])
def test_a_batch_is_that_of_the_plain_processor_with_the_logits_beside_it(make: Any, name: str) -> None:
    processor, plain = make(f"{name}_with_logits"), make(name)
    samples = samples_of(processor, [[0.5, -1.0], [2.0, 0.0]])
    batch = processor.collate(samples)
    assert batch.pop("teacher_logits").tolist() == [[0.5, -1.0], [2.0, 0.0]]
    np.testing.assert_equal(batch, plain.collate(samples))


def test_logits_follow_their_samples_into_any_order_and_part(make: Any) -> None:
    processor = make("single_with_logits")
    batch = processor.collate(samples_of(processor, [[0.5, -1.0], [2.0, 0.0]]).take(np.array([1, 0])))
    assert batch["teacher_logits"].tolist() == [[2.0, 0.0], [0.5, -1.0]]
    assert [part["teacher_logits"].tolist() for part in processor.split(batch, 2)] == [[[2.0, 0.0]], [[0.5, -1.0]]]


@pytest.mark.parametrize("logits", [None, [[], []], [[1.0, 2.0], []]])
def test_a_batch_has_no_logits_when_a_sample_has_none(make: Any, logits: list[list[float]] | None) -> None:
    processor = make("single_with_logits")
    assert "teacher_logits" not in processor.collate(samples_of(processor, logits))


def test_rows_with_other_numbers_of_logits_are_refused(make: Any) -> None:
    processor = make("single_with_logits")
    with pytest.raises(ConfigError, match="data_dir: has teacher logits: 1 numbers for one row, and 3 for another"):
        processor.collate(samples_of(processor, [[0.5], [2.0, 0.0, 1.0]]))
