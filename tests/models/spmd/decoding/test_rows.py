"""Rows of JSON from what was decoded."""

from typing import Any

import numpy as np

from xdpx.models.spmd.decoding.rows import decoded_rows, texts_by


def decoded() -> dict[str, Any]:
    """Two examples with two continuations each, and one that fills the batch up."""
    ids = np.arange(3 * 2 * 4).reshape(3, 2, 4)
    return {
        "output_ids": ids, "decode_lengths": np.array([[3, 4], [2, 3], [1, 1]]), "logprobs": ids / np.float32(4),
        "scores": np.float32([[0.5, -1.0], [0.25, 0.0], [0, 0]]), "prefix_lengths": np.array([2, 1, 1]),
        "original_ids": ids[:, 0], "original_lengths": np.array([4, 2, 1]),
        "eval_sample_weights": np.array([1.0, 1, 0]),
    }  # fmt: skip


def test_each_continuation_of_a_real_example_is_a_row() -> None:
    rows = decoded_rows(decoded(), texts_by(None), ["a", None, "b"])
    assert [key for key, _ in rows] == ["a", "a", "8", "12"]
    assert rows[1][1] == {
        "row_in_batch": 0,
        "prefix": "4 5", "decoded": "4 5 6 7", "original": "0 1 2 3", "ids": [4, 5, 6, 7], "sample_index": 1,
        "logprobs": [1.0, 1.25, 1.5, 1.75], "prefix_length": 2, "decode_length": 4, "decoded_substr": "6 7",
        "decoded_ids": [6, 7], "score": -1.0,
    }  # fmt: skip


def test_texts_are_asked_for_once() -> None:
    asked = []

    def texts(rows: Any) -> list[str]:
        asked.append(len(rows))
        return ["" for _ in rows]

    assert len(decoded_rows(decoded(), texts)) == 4
    assert asked == [16]
    assert decoded_rows({**decoded(), "eval_sample_weights": np.zeros(3)}, texts) == []
    assert asked == [16]
