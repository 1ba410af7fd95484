from __future__ import annotations

from typing import Any

import numpy as np

from xdpx.loaders.marks import SENTENCE_START
from xdpx.processors.samples import Ragged, Samples, offsets_of

SESSIONS = [
    [[5, 6], [8], [9, 11, 12]],
    [[20, 21], [23], [24, 26], [27], [29, 30]],
    [[40], [42, 43], [45]],
]


def samples_of(processor: Any, sessions: list[list[list[int]]]) -> Samples:
    rows = [[token for message in each for token in [message[0] | SENTENCE_START, *message[1:]]] for each in sessions]
    values = np.array([token for row in rows for token in row], np.int32)
    offsets = offsets_of(np.array([len(row) for row in rows]))
    return Samples(processor.numerize_many({"tokens": Ragged(values, offsets)}, None)[0])


def shown(batch: dict[str, Any], row: int) -> list[list[int]]:
    given = batch["net_input"]
    return [
        ids[mask].tolist()[1:-1]
        for ids, mask in zip(given["input_ids"][row], given["attention_mask"][row], strict=True)
        if mask.any()
    ]


def restored(batch: dict[str, Any]) -> dict[str, Any]:
    """Put back what was masked."""
    given = dict(batch["net_input"])
    ids = given["input_ids"].copy()
    ids.ravel()[given["masked_positions"]] = batch["target"]
    return {**batch, "net_input": {**given, "input_ids": ids}}


def test_windows_hold_messages_of_the_session_and_where_it_is_told_of_another(make: Any) -> None:
    processor = make("session_corpus", max_messages=3, replace_prob=0.3)
    samples = samples_of(processor, SESSIONS)
    windows = set()
    for epoch in range(150):
        batch = restored(processor.collate(samples, epoch=epoch, seed=1))
        for row, session in enumerate(SESSIONS):
            messages, told = shown(batch, row), batch["cls_target"][row].tolist()
            assert len(messages) == 3
            starts = [
                start
                for start in range(len(session) - 2)
                if all(flag or message == session[start + slot]
                       for slot, (message, flag) in enumerate(zip(messages, told, strict=True)))
            ]  # fmt: skip
            assert starts
            other = SESSIONS[(row + 1) % 3]
            assert all(message in other for message, flag in zip(messages, told, strict=True) if flag)
            if row == 1 and not any(told):
                windows.add(starts[0])
    assert windows == {0, 1, 2}


def test_a_session_is_the_same_alone_and_among_others_and_in_parts(make: Any) -> None:
    processor = make("session_corpus", max_messages=8, mask_prob=0.4)
    samples = samples_of(processor, SESSIONS)
    batch = processor.collate(samples, epoch=2, seed=3)
    assert batch["net_input"]["input_ids"].shape == (3, 5, 5)
    for row in range(3):
        alone = processor.collate(samples.take(np.array([row])), epoch=2, seed=3)
        assert shown(restored(alone), 0) == shown(restored(batch), row)
        assert shown(alone, 0) == shown(batch, row)
    halves = processor.split(batch, 2)
    assert np.concatenate([half["target"] for half in halves]).tolist() == batch["target"].tolist()
    assert [shown(restored(half), 0) for half in halves] == [shown(restored(batch), row) for row in (0, 1)]
    for part in (batch, *halves):
        there = part["net_input"]["attention_mask"].any(axis=-1).ravel()
        assert part["net_input"]["messages"].tolist() == np.flatnonzero(there).tolist()


def test_messages_are_cut_to_max_len(make: Any) -> None:
    processor = make("session_corpus", max_len=4)
    batch = processor.collate(samples_of(processor, SESSIONS[:1]))
    assert batch["net_input"]["input_ids"].shape == (1, 3, 4)
